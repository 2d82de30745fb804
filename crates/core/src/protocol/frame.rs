//! How messages between nodes are framed on a stream: a length, a kind, a body.
//!
//! ```text
//! offset 0   u32, big endian   bytes that follow: 1 + the body's
//! offset 4   u8                kind of message (see `peer`)
//! offset 5   …                 body: one MessagePack array
//! ```
//!
//! The first frame of each side on a connection is its greeting, which has a far lower limit; a
//! later version will authenticate and encrypt everything after it.

use crate::model::limits::VALUE_BYTES_MAX;

/// Bytes before the body.
pub const HEADER_BYTES: usize = 5;
/// Most bytes of one frame's body: the longest record, with room for its path and chain. What
/// can be longer (catch-ups, digests) is cut into several frames.
pub const BODY_BYTES_MAX: usize = VALUE_BYTES_MAX + (1 << 20);
/// Most bytes of a greeting's body: before it, a connection has cost nothing.
pub const GREETING_BYTES_MAX: usize = 4096;
/// The size that messages of many items are cut to, in bytes.
pub const PART_BYTES: usize = 16 << 10;

/// What is wrong with a frame's header. The connection cannot continue: the place where the next
/// frame begins is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The announced length is zero or above the limit.
    #[error("a frame of {announced} bytes was announced; 1 to {max} are allowed")]
    Length {
        /// What the header says.
        announced: usize,
        /// The limit that was in force.
        max: usize,
    },
}

/// A frame in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Which kind of message.
    pub kind: u8,
    /// Its body.
    pub body: &'a [u8],
    /// Bytes of the whole frame, header included.
    pub length: usize,
}

/// Looks for a whole frame at the start of a buffer; `None` if more bytes are needed.
///
/// # Errors
/// A length out of range is reported as soon as the header is there, before its bytes are.
pub fn split_frame(buffer: &[u8], body_max: usize) -> Result<Option<Frame<'_>>, FrameError> {
    let Some((header, rest)) = buffer.split_first_chunk::<4>() else { return Ok(None) };
    let announced = u32::from_be_bytes(*header) as usize;
    if announced == 0 || announced > body_max + 1 {
        return Err(FrameError::Length { announced, max: body_max + 1 });
    }
    let Some((kind, body)) = rest.get(..announced).and_then(<[u8]>::split_first) else {
        return Ok(None);
    };
    Ok(Some(Frame { kind: *kind, body, length: announced + 4 }))
}

/// Appends a frame whose body is written by `write`.
pub fn write_frame(kind: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind]);
    write(out);
    let length = (out.len() - at - 4) as u32;
    if let Some(slot) = out.get_mut(at..at + 4) {
        slot.copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_whole_or_not_at_all() {
        let mut bytes = Vec::new();
        write_frame(7, &mut bytes, |out| out.extend_from_slice(b"body"));
        write_frame(8, &mut bytes, |_| {});
        for cut in 0..9 {
            assert_eq!(split_frame(&bytes[..cut], 100), Ok(None), "{cut}");
        }
        let frame = split_frame(&bytes, 100).unwrap().unwrap();
        assert_eq!((frame.kind, frame.body, frame.length), (7, &b"body"[..], 9));
        let frame = split_frame(&bytes[9..], 100).unwrap().unwrap();
        assert_eq!((frame.kind, frame.body), (8, &b""[..]));
    }

    #[test]
    fn a_length_out_of_range_is_told_from_the_header_alone() {
        let error = FrameError::Length { announced: u32::MAX as usize, max: 11 };
        assert_eq!(split_frame(&[0xff; 4], 10), Err(error));
        assert!(split_frame(&[0; 4], 10).is_err());
    }
}
