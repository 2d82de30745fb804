//! What a node tells a peer while bytes of that peer's keep coming and no message of it is whole yet: a slow line
//! carries them, and an answer to a question that stands behind them has to wait. The node's affair, not the
//! engine's, so it is no [`super::PeerMessage`]; nodes that do not know it ignore it.

use crate::model::ids::Millis;
use crate::model::value::{ReadError, Reader, write_array_len, write_u64};
use crate::protocol::frame::write_frame;

/// The kind of these frames.
pub const ARRIVING_FRAME: u8 = 65;

/// Appends the frame: bytes of the receiver's arrive here, and this link is trusted for so long from now, even if
/// none came any more.
pub fn write_arriving(for_ms: Millis, out: &mut Vec<u8>) {
    write_frame(ARRIVING_FRAME, out, |out| {
        write_array_len(1, out);
        write_u64(for_ms, out);
    });
}

/// Reads the frame's body.
///
/// # Errors
/// It is not the MessagePack that belongs there; the link should be closed.
pub fn read_arriving(body: &[u8]) -> Result<Millis, ReadError> {
    let mut reader = Reader::new(body);
    let elements = reader.read_array_len()?;
    let for_ms = reader.read_u64()?;
    for _ in 1..elements {
        reader.read_raw()?;
    }
    Ok(for_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
    use crate::protocol::peer::PeerMessage;

    #[test]
    fn it_is_read_as_it_was_written_and_ignored_by_who_does_not_know_it() {
        let mut bytes = Vec::new();
        write_arriving(5_000, &mut bytes);
        let frame = split_frame(&bytes, BODY_BYTES_MAX).unwrap().unwrap();
        assert_eq!((frame.kind, frame.length), (ARRIVING_FRAME, bytes.len()));
        assert_eq!(read_arriving(frame.body), Ok(5_000));
        assert_eq!(PeerMessage::decode(&frame), Ok(None));
    }

    #[test]
    fn elements_of_later_versions_are_ignored_and_anything_else_is_refused() {
        assert_eq!(read_arriving(&[0x92, 7, 0xc0]), Ok(7));
        for body in [&[][..], &[0x90], &[0x92, 7], &[0x91, 0xc0], &[7]] {
            assert!(read_arriving(body).is_err(), "{body:?}");
        }
    }
}
