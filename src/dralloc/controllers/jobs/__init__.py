"""Jobs: pods until enough of them succeeded, and claims that a job holds for all its pods and gives up when it ends."""
