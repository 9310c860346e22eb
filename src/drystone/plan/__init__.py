"""What to do, as values, before anything is written: how granules combine, layouts, tasks, memory, the cost of reads."""
