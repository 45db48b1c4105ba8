"""Claims after their users: references that ended are dropped, devices given back, what nobody needs deleted."""
