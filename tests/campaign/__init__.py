"""The campaign of kills: a real cluster under load whose processes are killed again and again, and checkers of what it promises."""
