package distkv

import "distkv.example/client/internal/msgpack"

// body is a request in the making: fields that are MessagePack already. The value of seq comes last, from the connection.
type body struct {
	action string
	count  int
	fields []byte
}

func newBody(action string) *body { return &body{action: action} }

func pathBody(action string, path Path) *body { return newBody(action).path("path", path) }

func (b *body) name(name string) {
	b.count++
	b.fields = msgpack.AppendString(b.fields, name)
}

// raw adds one value that is MessagePack already.
func (b *body) raw(name string, value []byte) *body {
	b.name(name)
	b.fields = append(b.fields, value...)
	return b
}

func (b *body) path(name string, path Path) *body {
	b.name(name)
	b.fields = path.appendExt(b.fields)
	return b
}

func (b *body) integer(name string, value int64) *body {
	b.name(name)
	b.fields = msgpack.AppendInt(b.fields, value)
	return b
}

func (b *body) text(name, value string) *body {
	b.name(name)
	b.fields = msgpack.AppendString(b.fields, value)
	return b
}

func (b *body) binary(name string, value []byte) *body {
	b.name(name)
	b.fields = msgpack.AppendBinary(b.fields, value)
	return b
}

func (b *body) flag(name string) *body {
	b.name(name)
	b.fields = msgpack.AppendBool(b.fields, true)
	return b
}

func (b *body) begin(count int) []byte {
	request := make([]byte, 0, len(b.fields)+len(b.action)+32)
	request = msgpack.AppendMapHead(request, count)
	return msgpack.AppendString(msgpack.AppendString(request, "action"), b.action)
}

// head is the whole request up to the value of seq.
func (b *body) head() []byte {
	return msgpack.AppendString(append(b.begin(b.count+2), b.fields...), "seq")
}

// operation is the request without seq, as an operation of a batch.
func (b *body) operation() []byte { return append(b.begin(b.count+1), b.fields...) }

var (
	getHead      = string(msgpack.AppendString(msgpack.AppendString(msgpack.AppendString(msgpack.AppendMapHead(nil, 3), "action"), "get_value"), "path"))
	getChainHead = string(msgpack.AppendString(msgpack.AppendInt(msgpack.AppendString(msgpack.AppendString(msgpack.AppendString(msgpack.AppendMapHead(nil, 4), "action"), "get_value"), "nchain"), 1), "path"))
	seqName      = string(msgpack.AppendString(nil, "seq"))
)

// appendGet adds the request get_value up to the value of seq.
func appendGet(b []byte, path Path, withChain bool) []byte {
	if withChain {
		b = append(b, getChainHead...)
	} else {
		b = append(b, getHead...)
	}
	return append(path.appendExt(b), seqName...)
}
