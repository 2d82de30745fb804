//! Writers of single MessagePack items, each in its shortest form, at the end of a buffer.
//! They cannot fail, which is why they stand here and not `rmp`'s.

/// nil.
#[inline]
pub fn write_nil(out: &mut Vec<u8>) {
    out.push(0xc0);
}

/// true or false.
#[inline]
pub fn write_bool(value: bool, out: &mut Vec<u8>) {
    out.push(if value { 0xc3 } else { 0xc2 });
}

/// An unsigned integer.
#[inline]
pub fn write_u64(value: u64, out: &mut Vec<u8>) {
    match value {
        0..=0x7f => out.push(value as u8),
        0x80..=0xff => out.extend([0xcc, value as u8]),
        0x100..=0xffff => with_marker(0xcd, &(value as u16).to_be_bytes(), out),
        0x1_0000..=0xffff_ffff => with_marker(0xce, &(value as u32).to_be_bytes(), out),
        _ => with_marker(0xcf, &value.to_be_bytes(), out),
    }
}

/// A signed integer.
#[inline]
pub fn write_i64(value: i64, out: &mut Vec<u8>) {
    match value {
        0.. => write_u64(value.unsigned_abs(), out),
        -0x20..=-1 => out.push(value as u8),
        -0x80..=-0x21 => out.extend([0xd0, value as u8]),
        -0x8000..=-0x81 => with_marker(0xd1, &(value as i16).to_be_bytes(), out),
        -0x8000_0000..=-0x8001 => with_marker(0xd2, &(value as i32).to_be_bytes(), out),
        _ => with_marker(0xd3, &value.to_be_bytes(), out),
    }
}

/// A float, in 64 bits.
pub fn write_f64(value: f64, out: &mut Vec<u8>) {
    with_marker(0xcb, &value.to_be_bytes(), out);
}

/// A string.
#[inline]
pub fn write_str(text: &str, out: &mut Vec<u8>) {
    write_str_bytes(text.as_bytes(), out);
}

/// A string of bytes that are perhaps not UTF-8.
#[inline]
pub fn write_str_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_str_len(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// The head of a string of the given number of bytes, which must follow.
#[inline]
pub fn write_str_len(length: usize, out: &mut Vec<u8>) {
    match length {
        0..=31 => out.push(0xa0 | length as u8),
        _ => head_8_16_32([0xd9, 0xda, 0xdb], length, out),
    }
}

/// A byte string.
#[inline]
pub fn write_bin(bytes: &[u8], out: &mut Vec<u8>) {
    head_8_16_32([0xc4, 0xc5, 0xc6], bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// An extension.
pub fn write_ext(kind: i8, content: &[u8], out: &mut Vec<u8>) {
    match content.len() {
        1 => out.push(0xd4),
        2 => out.push(0xd5),
        4 => out.push(0xd6),
        8 => out.push(0xd7),
        16 => out.push(0xd8),
        length => head_8_16_32([0xc7, 0xc8, 0xc9], length, out),
    }
    out.extend(kind.to_be_bytes());
    out.extend_from_slice(content);
}

/// The head of an array of `count` items, which the caller writes behind it.
#[inline]
pub fn write_array_len(count: usize, out: &mut Vec<u8>) {
    match count {
        0..=15 => out.push(0x90 | count as u8),
        16..=0xffff => with_marker(0xdc, &(count as u16).to_be_bytes(), out),
        _ => with_marker(0xdd, &saturate(count).to_be_bytes(), out),
    }
}

/// The head of a map of `count` pairs, which the caller writes behind it.
#[inline]
pub fn write_map_len(count: usize, out: &mut Vec<u8>) {
    match count {
        0..=15 => out.push(0x80 | count as u8),
        16..=0xffff => with_marker(0xde, &(count as u16).to_be_bytes(), out),
        _ => with_marker(0xdf, &saturate(count).to_be_bytes(), out),
    }
}

/// A marker and the bytes behind it.
#[inline]
fn with_marker(marker: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(marker);
    out.extend_from_slice(bytes);
}

/// One of three markers, by how many bytes the length needs, and the length.
#[inline]
fn head_8_16_32(markers: [u8; 3], length: usize, out: &mut Vec<u8>) {
    let [marker8, marker16, marker32] = markers;
    match length {
        0..=0xff => out.extend([marker8, length as u8]),
        0x100..=0xffff => with_marker(marker16, &(length as u16).to_be_bytes(), out),
        _ => with_marker(marker32, &saturate(length).to_be_bytes(), out),
    }
}

/// MessagePack's greatest length. What is longer comes from a program that uses the client library; whoever
/// checks the length of the whole refuses it, and it is never sent.
#[inline]
fn saturate(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
