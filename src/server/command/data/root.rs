//! `root`: the session moves to a part of the tree and stays there.

use crate::protocol::client::request::{ChainLength, RequestPath};
use crate::protocol::client::{Action, ClientError, MessageWriter};
use crate::server::connections::session::{Context, NodeNames, Session, Then};

impl Session {
    /// `root`: moves the session's root, relative to the present one, and returns the entry there.
    /// Open streams are not affected.
    pub(in crate::server) fn move_root(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        path: &RequestPath<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        let root = self.resolve(cx, Action::Root, path)?.to_path();
        Self::check_ready(cx)?;
        let (entry, names, tock) = cx.hub.read(|engine| {
            (engine.get(root.as_bytes()).cloned(), NodeNames::of(engine), engine.tock())
        });
        let mut message = MessageWriter::new(out);
        match &entry {
            Some(entry) => message.entry(entry, ChainLength::WHOLE, names.names()),
            None => message.nil("chain").tock(tock),
        };
        // Below the root that was, and now is: nothing. An array if something was cut off.
        let below = message.key("path");
        if root.is_root() {
            root.encode_ext3(below);
        } else {
            crate::model::value::write_array_len(0, below);
        }
        message.u64("seq", seq);
        self.root = root;
        Ok(Then::Continue)
    }
}
