"""The device-accounting model: the rules that every component applies to devices, pools and allocations.

Pure, one module per rule. The scheduler, the API server's write guard, the controllers, recorded profiles and the driver
kit all ask these modules, so that they cannot disagree.
"""
