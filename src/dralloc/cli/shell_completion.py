"""`--install-completion` and `--show-completion`: for the shell that is named after them, or the one that runs the command.

typer's own options ignore a word after them and take the running shell, whatever was named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from typer.completion import install_callback, show_callback

SHELLS: Final = ("bash", "zsh", "fish")
OPTIONS: Final[dict[str, Callable[[Any, Any, Any], Any]]] = {
    "--install-completion": install_callback,
    "--show-completion": show_callback,
}


def set_up_completion(ctx: Any, arguments: Sequence[str]) -> None:
    """Installs or shows the script where the first argument asks for it, and ends the command; refuses other shells."""
    option, _, named = (arguments[0] if arguments else "").partition("=")
    if option not in OPTIONS or ctx.resilient_parsing:
        return
    words = [*([named] if named else ()), *arguments[1:]]
    if len(words) > 1 or any(word.startswith("-") for word in words):
        ctx.fail(f"{option} stands alone, or with the name of a shell: {_alternatives()}")
    shell = words[0] if words else _running_shell()
    if shell not in SHELLS:
        what = f"{shell!r} is not a shell with completion" if shell else "The running shell is not known"
        ctx.fail(f"{what}. Name one after {option}: {_alternatives()}")
    OPTIONS[option](ctx, None, shell)


def _alternatives() -> str:
    return f"{', '.join(SHELLS[:-1])} or {SHELLS[-1]}"


def _running_shell() -> str:
    import shellingham  # type: ignore[import-untyped]

    try:
        name: str = shellingham.detect_shell()[0]
    except shellingham.ShellDetectionFailure:
        return ""
    return name
