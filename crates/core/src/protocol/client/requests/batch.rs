//! `batch`: many reads and writes of single entries in one request.

use crate::model::value::{Kind, Reader};
use crate::protocol::client::action::Action;
use crate::protocol::client::decode::decode_get;
use crate::protocol::client::error::{ClientError, ErrorCode};
use crate::protocol::client::field::{Field, Fields, wrong};
use crate::protocol::client::request::{ChainLength, Request, RequestPath};
use crate::protocol::client::write::{WriteRequest, decode_write};

/// Most operations of one batch: each costs memory until all are answered, and the answers go out
/// together.
const BATCH_OPS_MAX: usize = 1_024;

/// A batch as it came, or what is left of it. Its operations are decoded when it is their turn: decoded, they take a
/// hundred times their bytes, and many batches can wait.
#[derive(Clone, Copy, Debug)]
pub struct BatchRequest<'a> {
    /// At most [`BATCH_OPS_MAX`].
    count: usize,
    /// This many MessagePack values.
    raw: &'a [u8],
}

/// One of them.
#[derive(Debug)]
pub enum BatchOp<'a> {
    /// `get_value` by path, `get_internal`.
    Get {
        /// Where.
        path: RequestPath<'a>,
        /// How much of the chain is wanted.
        chain: ChainLength,
    },
    /// `set_value`, `delete_value`, `set_internal`, `delete_internal`, without copies.
    Write(WriteRequest<'a>),
}

impl<'a> BatchRequest<'a> {
    /// Decodes the field `ops`, but not the operations.
    ///
    /// # Errors
    /// It is no array, or too long.
    pub(in crate::protocol::client) fn decode(fields: &Fields<'a>) -> Result<Self, ClientError> {
        let mut reader = Reader::new(fields.need(Field::Ops)?);
        let count = reader.read_array_len().map_err(|e| wrong(Field::Ops, &e))?;
        if count > BATCH_OPS_MAX {
            let text =
                format!("a batch of {count} operations; at most {BATCH_OPS_MAX} are allowed");
            return Err(ClientError::new(ErrorCode::TooLarge, text));
        }
        Ok(Self { count, raw: reader.rest() })
    }

    /// What is left of a batch: the values of [`Self::as_parts`], at another time.
    #[must_use]
    pub fn of_parts(count: usize, raw: &'a [u8]) -> Self {
        Self { count, raw }
    }

    /// How many operations there are, and their bytes.
    #[must_use]
    pub fn as_parts(&self) -> (usize, &'a [u8]) {
        (self.count, self.raw)
    }

    /// Takes the first operations off: as many as have `bytes_max` bytes, but no more than `ops_max`, and at least one, if
    /// there is one. One that is wrong is an error of its own.
    pub fn take(
        &mut self,
        ops_max: usize,
        bytes_max: usize,
    ) -> Vec<Result<BatchOp<'a>, ClientError>> {
        let (all, mut reader) = (self.raw.len(), Reader::new(self.raw));
        let mut ops = Vec::with_capacity(self.count.min(ops_max));
        while self.count > 0 && ops.len() < ops_max && all - self.raw.len() < bytes_max {
            let op = reader.read_raw().map_err(|e| wrong(Field::Ops, &e));
            ops.push(op.and_then(BatchOp::decode));
            self.count -= 1;
            self.raw = reader.rest();
        }
        ops
    }
}

impl<'a> BatchOp<'a> {
    fn decode(op: &'a [u8]) -> Result<Self, ClientError> {
        if !matches!(Reader::new(op).peek_kind(), Ok(Kind::Map)) {
            return Err(ClientError::bad_request("an operation of a batch must be a map"));
        }
        // The message itself can be read, so its connection is not closed because of its content.
        let fields = Fields::find(op).map_err(|e| ClientError::bad_request(e.text))?;
        let name = fields.text(Field::Action)?;
        let refused = || {
            let name: String = name.chars().take(64).collect();
            ClientError::bad_request(format!("'{name}' cannot be part of a batch"))
        };
        match Action::of(name.as_bytes()).ok_or_else(refused)? {
            action @ (Action::GetValue | Action::GetInternal) => {
                match decode_get(action, &fields)? {
                    Request::Get { path, chain } => Ok(Self::Get { path, chain }),
                    _ => Err(ClientError::bad_request("in a batch, entries are read by path")),
                }
            }
            action @ (Action::SetValue
            | Action::SetInternal
            | Action::DeleteValue
            | Action::DeleteInternal) => {
                let write = decode_write(action, &fields)?;
                if write.copies > 0 {
                    let text = "a write in a batch cannot wait for 'copies'; send it by itself";
                    return Err(ClientError::bad_request(text));
                }
                Ok(Self::Write(write))
            }
            _ => Err(refused()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` operations that read `path`, a canonical path.
    fn reads(count: usize, path: &str) -> Vec<u8> {
        let mut raw = Vec::new();
        for _ in 0..count {
            crate::model::value::write_map_len(2, &mut raw);
            crate::model::value::write_str("action", &mut raw);
            crate::model::value::write_str("get_value", &mut raw);
            crate::model::value::write_str("path", &mut raw);
            crate::model::value::write_array_len(1, &mut raw);
            crate::model::value::write_str(path, &mut raw);
        }
        raw
    }

    #[test]
    fn operations_are_taken_in_order_by_number_and_by_bytes() {
        let raw = reads(5, "a");
        let mut batch = BatchRequest::of_parts(5, &raw);
        assert_eq!(batch.take(2, usize::MAX).len(), 2);
        let (left, rest) = batch.as_parts();
        assert_eq!((left, rest), (3, &raw[raw.len() / 5 * 2..]));
        // The one that reaches the bound is taken, too: so there is always one.
        assert_eq!(batch.take(9, 1).len(), 1);
        let each = raw.len() / 5;
        assert_eq!(batch.take(9, each + 1).len(), 2);
        assert_eq!(batch.as_parts(), (0, &[][..]));
        assert!(batch.take(9, 9).is_empty());
    }

    #[test]
    fn one_that_is_wrong_is_an_error_of_its_own() {
        let raw = [&reads(1, "a")[..], &[0x01], &reads(1, "b")[..]].concat();
        let ops = BatchRequest::of_parts(3, &raw).take(9, usize::MAX);
        let is_good: Vec<bool> = ops.iter().map(Result::is_ok).collect();
        assert_eq!(is_good, [true, false, true]);
    }
}
