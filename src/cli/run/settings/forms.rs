//! How the configuration file says sizes, durations, policies and values, beside what TOML has itself.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};

use crate::cli::terminal::units::{parse_bytes, parse_duration};
use crate::model::value::Value;
use crate::node::config::SyncPolicy;
use crate::protocol::json::value_from_json;

/// A size, as a number of bytes or as text with a unit.
pub(super) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    struct Size;
    impl Visitor<'_> for Size {
        type Value = usize;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a size, as a number of bytes or text like \"512MiB\"")
        }

        fn visit_i64<E: serde::de::Error>(self, bytes: i64) -> Result<usize, E> {
            self.visit_str(&bytes.to_string())
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<usize, E> {
            parse_bytes(text).map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Size).map(Some)
}

/// A duration, as a number of seconds or as text with a unit.
pub(super) fn duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    struct Time;
    impl Visitor<'_> for Time {
        type Value = Duration;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a duration, as a number of seconds or text like \"10m\"")
        }

        fn visit_i64<E: serde::de::Error>(self, seconds: i64) -> Result<Duration, E> {
            self.visit_str(&seconds.to_string())
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
            parse_duration(text).map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Time).map(Some)
}

/// The name of a file or directory. An empty one is none, as options have it: some calls take it for this directory, and
/// others for one that is not there.
pub(super) fn path<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<PathBuf>, D::Error> {
    // Serde's error would show what stands there, which may be a secret.
    let path = PathBuf::deserialize(deserializer)
        .map_err(|_| D::Error::custom("the name of a file or directory is wanted, in quotes"))?;
    if path.as_os_str().is_empty() {
        let text = "an empty name is no file and no directory; name one, or leave the key out";
        return Err(D::Error::custom(text));
    }
    Ok(Some(path))
}

/// A sync policy's word.
pub(super) fn sync_policy<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SyncPolicy>, D::Error> {
    let word = String::deserialize(deserializer)?;
    parse_sync(&word).map(Some).map_err(D::Error::custom)
}

/// Reads a sync policy.
pub(super) fn parse_sync(word: &str) -> Result<SyncPolicy, String> {
    SyncPolicy::of(word).ok_or_else(|| {
        format!("{word:?} is no sync policy; use never, every-second or every-batch")
    })
}

/// The root's value, as TOML.
pub(super) fn value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    let json = json_of_toml(toml::Value::deserialize(deserializer)?).map_err(D::Error::custom)?;
    value_from_json(&json).map(Some).map_err(D::Error::custom)
}

/// TOML as JSON. The recursion is bounded: TOML's parser takes no more than 80 levels.
fn json_of_toml(value: toml::Value) -> Result<serde_json::Value, &'static str> {
    Ok(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => {
            let number = serde_json::Number::from_f64(number);
            serde_json::Value::Number(number.ok_or("a float that is no number cannot be a value")?)
        }
        toml::Value::Boolean(value) => value.into(),
        toml::Value::Datetime(_) => return Err("a date cannot be a value; write it as a string"),
        toml::Value::Array(items) => {
            items.into_iter().map(json_of_toml).collect::<Result<Vec<_>, _>>()?.into()
        }
        toml::Value::Table(table) => table
            .into_iter()
            .map(|(key, value)| Ok((key, json_of_toml(value)?)))
            .collect::<Result<serde_json::Map<_, _>, &'static str>>()?
            .into(),
    })
}
