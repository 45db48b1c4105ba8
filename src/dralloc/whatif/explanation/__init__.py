"""Why claims get these devices, or none: reasons that people understand, and the smallest change that would help.

    explain(question)       everything that is to be said about some claims on some nodes, as values
    Diagnoser.reason(...)   why one node does not do, as one short value; cheap enough to ask for every node
    availability(...)       many such reasons as one line: `0/500 nodes are available: 480 nodes: memory short (…); …`

Pure, like the rest of the package. Everything here is a value first; `text` and `plain` turn it into lines and JSON.
"""
