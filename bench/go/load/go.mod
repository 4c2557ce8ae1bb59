module trainmaster/bench/load

go 1.24
