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

/// A batch as it came. Its operations are decoded when it is its turn: decoded, they take a hundred
/// times their bytes, and many batches can wait.
#[derive(Debug)]
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

    /// The operations, in order. One that is wrong is an error of its own.
    #[must_use]
    pub fn ops(&self) -> Vec<Result<BatchOp<'a>, ClientError>> {
        let mut reader = Reader::new(self.raw);
        let next = |_| {
            let op = reader.read_raw().map_err(|e| wrong(Field::Ops, &e))?;
            BatchOp::decode(op)
        };
        (0..self.count).map(next).collect()
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
