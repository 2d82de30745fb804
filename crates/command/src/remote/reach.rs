//! What reads and writes go to: one node, or the smart client of a cluster.

use std::time::Duration;

use distkv_client::smart::{RawRequest, WriteId};
use distkv_client::{Client, Fields, Idempotency, Message};
use distkv_model::path::Path;

use super::{NODE_TELLS, Remote};
use crate::error::CliError;

/// What reads and writes go to: a node that was named, or the cluster of those that were.
pub enum Reach {
    /// One node.
    Node(Remote),
    /// And how long a request may take.
    Cluster(Client, Duration),
}

impl Reach {
    /// With time for the node to say that its time is over.
    pub fn patient(self) -> Reach {
        match self {
            Reach::Node(remote) => Reach::Node(remote.patient()),
            Reach::Cluster(client, timeout) => Reach::Cluster(client, timeout + NODE_TELLS),
        }
    }

    /// Makes a request about a path. A write gets an id, so that it can be tried again at another node.
    pub async fn request(
        &self,
        action: &str,
        mut fields: Fields,
        path: &Path,
        kind: RequestKind,
    ) -> Result<Message, CliError> {
        let (client, timeout) = match self {
            Reach::Node(remote) => return remote.request(action, &fields).await,
            Reach::Cluster(client, timeout) => (client, *timeout),
        };
        let (idempotency, try_deadline) = match kind {
            RequestKind::Read => (Idempotency::Read, None),
            RequestKind::Write => {
                fields.bin("wid", &WriteId::random().0);
                // The node may wait for copies all that time.
                (Idempotency::Guarded, Some(timeout))
            }
        };
        let fields = &fields;
        // With a precondition, too, it is no more than safe.
        let needs_id = kind == RequestKind::Write;
        let request = RawRequest { action, fields, path, idempotency, needs_id, try_deadline };
        Ok(client.request(request).await?)
    }
}

/// What a request is, for trying it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// A read: it can be made again at any node.
    Read,
    /// Of one entry.
    Write,
}
