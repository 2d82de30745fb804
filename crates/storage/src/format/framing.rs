//! Puts records into frames, in a buffer that is written out later.

use crate::frame::{FRAME_BYTES_AIM, begin_frame, end_frame};
use crate::model::invariant::invariant;

/// A buffer of frames that are to be appended to a file.
pub(crate) struct Framing {
    out: Vec<u8>,
    /// Where in the file the buffer begins.
    base: u64,
    /// The frame that was begun, if one is open.
    open: Option<usize>,
}

impl Framing {
    /// For a new file.
    pub(crate) fn new() -> Self {
        Self { out: Vec::new(), base: 0, open: None }
    }

    /// The position in the file behind all that was put in.
    pub(crate) fn position(&self) -> u64 {
        self.base + self.out.len() as u64
    }

    /// The bytes that were not taken yet; no frame may be open.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// The bytes were written: makes room for the next ones.
    pub(crate) fn clear(&mut self) {
        invariant!(self.open.is_none(), "no frame is open");
        self.base += self.out.len() as u64;
        self.out.clear();
    }

    /// Appends a frame with one call's payload.
    pub(crate) fn frame(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.begin();
        write(&mut self.out);
        self.end();
    }

    /// Begins a frame.
    pub(crate) fn begin(&mut self) {
        invariant!(self.open.is_none(), "no frame is open");
        self.open = Some(begin_frame(&mut self.out));
    }

    /// What the open frame's payload is appended to.
    pub(crate) fn payload(&mut self) -> &mut Vec<u8> {
        invariant!(self.open.is_some(), "a frame is open");
        &mut self.out
    }

    /// Whether the open frame is long enough to be ended.
    pub(crate) fn is_full(&self) -> bool {
        self.open.is_some_and(|at| self.out.len() - at >= FRAME_BYTES_AIM)
    }

    /// Ends the open frame, if there is one.
    pub(crate) fn end(&mut self) {
        if let Some(at) = self.open.take() {
            let position = self.base + at as u64;
            end_frame(&mut self.out, at, position);
        }
    }
}
