"""Tools about what is to be done: the steps of a task, and jobs."""
