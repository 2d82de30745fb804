package main

import (
	"context"
	"errors"
	"fmt"

	distkv "distkv.example/client"
)

type Lamp struct {
	On    bool `msgpack:"on"`
	Level int  `msgpack:"level,omitempty"`
}

func main() {
	ctx, path := context.Background(), distkv.PathOf("readme", "lamp")
	client, err := distkv.Connect(ctx, distkv.Config{Seeds: []string{"127.0.0.1:44815"}})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	client.Put(ctx, path, Lamp{On: true}, nil)
	entry, err := client.Entry(ctx, path, nil)
	if err != nil {
		panic(err)
	}
	client.Put(ctx, path, Lamp{Level: 3}, &distkv.PutOptions{IfVersion: entry.Version})
	_, err = client.Put(ctx, path, Lamp{}, &distkv.PutOptions{IfVersion: entry.Version})
	var failed *distkv.Error
	switch {
	case errors.Is(err, distkv.ErrPrecondition) && errors.As(err, &failed): // somebody was there first
		fmt.Println(failed.Code) // chain_mismatch
	case errors.Is(err, distkv.ErrFateUnknown): // it may have been made
	}
	lamp, err := distkv.Get[Lamp](ctx, client, path, nil)
	fmt.Printf("%+v %v\n", lamp, err) // {On:false Level:3} <nil>
	client.DeleteTree(ctx, distkv.MustPath("readme"), nil)
}
