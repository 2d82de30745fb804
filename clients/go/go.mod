module distkv.example/client

go 1.25
