package main

import (
	"context"
	"fmt"

	distkv "distkv.example/client"
)

func main() {
	ctx, path := context.Background(), distkv.MustPath("site.lamp")
	client, err := distkv.Connect(ctx, distkv.Config{Seeds: []string{"127.0.0.1:44815"}})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	_, err = client.Put(ctx, path, map[string]bool{"on": true}, &distkv.PutOptions{Copies: 1})
	lamp, err2 := distkv.Get[map[string]bool](ctx, client, path, nil)
	fmt.Println(lamp, err, err2) // map[on:true] <nil> <nil>
}
