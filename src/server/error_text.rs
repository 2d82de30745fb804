//! Paths and values as texts of errors show them: cut short, whatever they hold.

use crate::model::path::Path;
use crate::model::value::{Kind, Reader};

/// As many characters as an error repeats of what the client sent.
const SHOWN: usize = 200;

/// Whether a text is cut short.
pub(super) fn is_cut(text: &str) -> bool {
    text.char_indices().nth(SHOWN).is_some()
}

/// A text, cut short.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// A path in text form.
pub(super) fn show_path(path: &Path) -> String {
    shown(&path.to_string())
}

/// A scalar, or what kind of value it is.
pub(super) fn show_value(value: &[u8]) -> String {
    let mut reader = Reader::new(value);
    let scalar = match reader.peek_kind() {
        Ok(Kind::Nil) => Some(String::from("nil")),
        Ok(Kind::Bool) => reader.read_bool().ok().map(|v| v.to_string()),
        Ok(Kind::Int) => reader.read_int().ok().map(|v| v.to_string()),
        Ok(Kind::Float) => reader.read_f64().ok().map(|v| format!("{v:?}")),
        Ok(Kind::Str) => reader.read_str().ok().map(|v| format!("{:?}", shown(v))),
        Ok(kind) => Some(kind.to_string()),
        Err(_) => None,
    };
    scalar.unwrap_or_else(|| String::from("something else"))
}
