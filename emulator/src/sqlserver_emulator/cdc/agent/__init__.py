"""What SQL Server Agent does for CDC: the capture jobs as processes, the cleanup, and who watches over them."""
