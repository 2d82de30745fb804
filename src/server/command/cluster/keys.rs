//! `key_list`, `key_add`, `key_use` and `key_remove`: the cluster's keys, for admins. No reply has a secret.

use std::sync::Arc;

use super::admin::LongMap;
use super::delete_group::write_texts;
use crate::engine::Engine;
use crate::model::value::{write_array_len, write_nil};
use crate::protocol::client::reply::write_error;
use crate::protocol::client::request::KeyChange;
use crate::protocol::client::{Action, ClientError, ErrorCode, MessageWriter};
use crate::server::access::authorise::Target;
use crate::server::connections::session::{Context, Purpose, Session, Then};
use crate::server::info::{KeyOrder, KeyRefusal, NodeKeys};

impl Session {
    /// `key_list`.
    pub(in crate::server) fn key_list(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        out: &mut Vec<u8>,
    ) -> Result<Then, ClientError> {
        self.authorise(cx, Action::KeyList, Target::Node)?;
        let view = cx.shared.info.keys().ok_or_else(|| refused(KeyRefusal::NoKey))?;
        let mut message = MessageWriter::new(out);
        let list = message.key("result");
        write_array_len(view.nodes.len(), list);
        view.nodes.iter().for_each(|node| write_node(node, list));
        write_texts(view.shared.iter().map(String::as_str), message.key("shared"));
        message.u64("seq", seq).tock(cx.tock());
        Ok(Then::Continue)
    }

    /// `key_add`, `key_use`, `key_remove`.
    pub(in crate::server) fn change_keys(
        &mut self,
        cx: &Context<'_>,
        seq: u64,
        change: &KeyChange<'_>,
    ) -> Result<Then, ClientError> {
        let (action, order) = match change {
            KeyChange::Add { secret } => {
                let text = "bad field 'secret': a key has 32 bytes";
                let secret = <[u8; 32]>::try_from(*secret);
                let secret = secret.map_err(|_| ClientError::bad_request(text))?;
                (Action::KeyAdd, KeyOrder::Add { secret })
            }
            KeyChange::Use { id, force } => {
                (Action::KeyUse, KeyOrder::Use { id: (*id).to_owned(), force: *force })
            }
            KeyChange::Remove { id, force } => {
                (Action::KeyRemove, KeyOrder::Remove { id: (*id).to_owned(), force: *force })
            }
        };
        self.authorise(cx, action, Target::Node)?;
        if action == Action::KeyAdd && !(self.is_local || self.guest.is_in_tls) {
            let text = "a key is taken only by TLS, or from this node's own machine: who can listen on the way \
                        has seen it now; make another one";
            return Err(ClientError::new(ErrorCode::Denied, text));
        }
        let (info, hub) = (Arc::clone(&cx.shared.info), Arc::clone(&cx.shared.hub));
        let counts = Arc::clone(&cx.shared.counts);
        Ok(Then::heavy(cx, seq, Purpose::to_change(action), move || {
            let changed = info.change_keys(order);
            let (tock, mut reply) = (hub.read(Engine::tock), Vec::new());
            match changed {
                Ok((id, changed)) => {
                    MessageWriter::new(&mut reply)
                        .str("key", &id)
                        .bool("changed", changed)
                        .u64("seq", seq)
                        .tock(tock);
                }
                Err(refusal) => {
                    let error = refused(refusal);
                    counts.note_error(&error);
                    write_error(&error, Some(seq), tock, &mut reply);
                }
            }
            reply
        }))
    }
}

fn refused(refusal: KeyRefusal) -> ClientError {
    let (code, text) = match refusal {
        KeyRefusal::NoKey => {
            let text =
                "this node has no cluster key (--key), so there is none to list or to change";
            (ErrorCode::NotFound, text.to_owned())
        }
        KeyRefusal::BadId(text) => (ErrorCode::BadRequest, text),
        KeyRefusal::Unknown(text) => (ErrorCode::NotFound, text),
        KeyRefusal::Blocked(text) => (ErrorCode::InUse, text),
        KeyRefusal::NotKept(text) => (ErrorCode::StorageFailed, text),
    };
    ClientError::new(code, text)
}

fn write_node(node: &NodeKeys, out: &mut Vec<u8>) {
    let mut map = LongMap::default();
    map.str("name", &node.name);
    map.str("state", node.state.word());
    match &node.ids {
        Some(ids) => write_texts(ids.iter().map(String::as_str), map.key("keys")),
        None => write_nil(map.key("keys")),
    }
    map.optional_str("primary", node.primary.as_deref());
    map.optional_str("trouble", node.trouble.as_deref());
    map.finish(out);
}
