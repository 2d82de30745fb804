//! The path of a request below the root of its session.

use crate::model::path::{Path, PathBytes};
use crate::protocol::client::request::RequestPath;

/// A whole path: as it was sent, or below the session's root or nil.
pub(in crate::server) enum WholePath<'a> {
    AsSent(&'a RequestPath<'a>),
    Joined(Path),
}

impl WholePath<'_> {
    pub(in crate::server) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::AsSent(sent) => sent.path.as_bytes(),
            Self::Joined(path) => path.as_bytes(),
        }
    }

    pub(in crate::server) fn to_bytes(&self) -> PathBytes<'_> {
        match self {
            Self::AsSent(sent) => sent.path.reborrow(),
            Self::Joined(path) => path.into(),
        }
    }

    pub(in crate::server) fn to_path(&self) -> Path {
        match self {
            Self::AsSent(sent) => sent.path.to_path(),
            Self::Joined(path) => path.clone(),
        }
    }
}
