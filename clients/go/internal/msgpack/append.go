// Package msgpack writes, splits and reads MessagePack, as far as the client protocol needs it: no reflection, no
// allocation beyond what is returned. Pure.
package msgpack

import (
	"encoding/binary"
	"math"
)

// AppendNil adds nil.
func AppendNil(b []byte) []byte { return append(b, 0xc0) }

// AppendBool adds a boolean.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 0xc3)
	}
	return append(b, 0xc2)
}

// AppendUint adds a number in its shortest form.
func AppendUint(b []byte, v uint64) []byte {
	switch {
	case v < 0x80:
		return append(b, byte(v))
	case v <= math.MaxUint8:
		return append(b, 0xcc, byte(v))
	case v <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	default:
		return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
	}
}

// AppendInt adds a number in its shortest form.
func AppendInt(b []byte, v int64) []byte {
	switch {
	case v >= 0:
		return AppendUint(b, uint64(v))
	case v >= -32:
		return append(b, byte(v))
	case v >= math.MinInt8:
		return append(b, 0xd0, byte(v))
	case v >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(b, 0xd1), uint16(v))
	case v >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(b, 0xd2), uint32(v))
	default:
		return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
	}
}

// AppendFloat adds a number of 64 bits.
func AppendFloat(b []byte, v float64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(v))
}

// AppendFloat32 adds a number of 32 bits.
func AppendFloat32(b []byte, v float32) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0xca), math.Float32bits(v))
}

// AppendString adds a text.
func AppendString[T ~string | ~[]byte](b []byte, v T) []byte {
	n := len(v)
	switch {
	case n < 32:
		b = append(b, 0xa0|byte(n))
	case n <= math.MaxUint8:
		b = append(b, 0xd9, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, 0xda), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
	}
	return append(b, v...)
}

// AppendBinary adds a byte string.
func AppendBinary(b, v []byte) []byte {
	n := len(v)
	switch {
	case n <= math.MaxUint8:
		b = append(b, 0xc4, byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, 0xc5), uint16(n))
	default:
		b = binary.BigEndian.AppendUint32(append(b, 0xc6), uint32(n))
	}
	return append(b, v...)
}

// AppendArrayHead begins an array of so many items.
func AppendArrayHead(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x90|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
	}
}

// AppendMapHead begins a map of so many pairs.
func AppendMapHead(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x80|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, 0xde), uint16(n))
	default:
		return binary.BigEndian.AppendUint32(append(b, 0xdf), uint32(n))
	}
}

// AppendExt adds an extension.
func AppendExt[T ~string | ~[]byte](b []byte, kind int8, data T) []byte {
	n := len(data)
	switch {
	case n == 1:
		b = append(b, 0xd4, byte(kind))
	case n == 2:
		b = append(b, 0xd5, byte(kind))
	case n == 4:
		b = append(b, 0xd6, byte(kind))
	case n == 8:
		b = append(b, 0xd7, byte(kind))
	case n == 16:
		b = append(b, 0xd8, byte(kind))
	case n <= math.MaxUint8:
		b = append(b, 0xc7, byte(n), byte(kind))
	case n <= math.MaxUint16:
		b = append(binary.BigEndian.AppendUint16(append(b, 0xc8), uint16(n)), byte(kind))
	default:
		b = append(binary.BigEndian.AppendUint32(append(b, 0xc9), uint32(n)), byte(kind))
	}
	return append(b, data...)
}
