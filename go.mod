module clrsnap

go 1.26
