//! The values of types and matches.

use distkv_model::path::Path;
use distkv_model::value::{Kind, ReadError, Reader, Value, write_map_len};

use super::TypeError;
use super::json::{repr, to_json};
use super::schema::{SCHEMA_BYTES_MAX, Schema, SchemaError};

/// Most bytes of a type with its examples: 256 KiB.
pub(crate) const TYPE_BYTES_MAX: usize = 256 << 10;

const NO_MAP: TypeError = TypeError::Form("a type is a map");

/// A type as it is stored; its parts are MessagePack values.
#[derive(Debug, Default)]
pub(super) struct TypeRecord<'v> {
    pub(super) schema: Option<&'v [u8]>,
    pub(super) good: Option<Vec<&'v [u8]>>,
    pub(super) bad: Option<Vec<&'v [u8]>>,
}

impl<'v> TypeRecord<'v> {
    pub(super) fn read(value: &'v [u8]) -> Result<Self, TypeError> {
        if value.len() > TYPE_BYTES_MAX {
            return Err(TypeError::Form("a type has at most 256 KiB"));
        }
        let mut record = Self::default();
        let mut reader = Reader::new(value);
        for _ in 0..reader.read_map_len().map_err(|_| NO_MAP)? {
            let key = reader.read_raw().map_err(|_| NO_MAP)?;
            let value = reader.read_raw().map_err(|_| NO_MAP)?;
            match Reader::new(key).read_str_bytes() {
                Ok(b"code") => return Err(TypeError::Python("'code'")),
                Ok(b"schema") => record.schema = Some(value),
                Ok(b"good") => record.good = Some(list(value)?),
                Ok(b"bad") => record.bad = Some(list(value)?),
                _ => {}
            }
        }
        Ok(record)
    }
}

fn list(value: &[u8]) -> Result<Vec<&[u8]>, TypeError> {
    let read = || -> Result<Vec<&[u8]>, ReadError> {
        let mut reader = Reader::new(value);
        (0..reader.read_array_len()?).map(|_| reader.read_raw()).collect()
    };
    read().map_err(|_| TypeError::Form("'good' and 'bad' are lists"))
}

/// A schema, compiled from MessagePack.
pub(super) fn compile(schema: &[u8]) -> Result<Schema, SchemaError> {
    if schema.len() > SCHEMA_BYTES_MAX {
        return Err(SchemaError::TooLarge("64 KiB"));
    }
    let json = to_json(schema).map_err(|error| SchemaError::Invalid(format!("it {error}")))?;
    Schema::compile(json, schema.len())
}

const NO_TYPE: TypeError = TypeError::Form("a match is a map with a 'type'");

/// The path of the type that a match names: a path, a list or text.
pub(super) fn read_match(value: &[u8]) -> Result<Path, TypeError> {
    let named = field_type(value)?;
    let mut reader = Reader::new(named);
    let shown = || to_json(named).map_or("this".to_owned(), |json| repr(&json));
    match reader.peek_kind() {
        Ok(Kind::Str) => {
            let text = reader.read_str().ok();
            let path = text.and_then(|text| text.parse::<Path>().ok());
            path.ok_or_else(|| TypeError::NoPath(shown()))
        }
        _ => Path::from_msgpack_value(named).map_err(|_| TypeError::NoPath(shown())),
    }
}

fn field_type(value: &[u8]) -> Result<&[u8], TypeError> {
    let mut reader = Reader::new(value);
    let mut found = None;
    for _ in 0..reader.read_map_len().map_err(|_| NO_TYPE)? {
        let key = reader.read_raw().map_err(|_| NO_TYPE)?;
        let value = reader.read_raw().map_err(|_| NO_TYPE)?;
        if Reader::new(key).read_str_bytes() == Ok(b"type") {
            found = Some(value);
        }
    }
    found.ok_or(NO_TYPE)
}

/// The match with its type as a path; none if it did not come as text.
pub(super) fn match_value(value: &[u8], target: &Path) -> Result<Option<Value>, TypeError> {
    if Reader::new(field_type(value)?).peek_kind() != Ok(Kind::Str) {
        return Ok(None);
    }
    let mut reader = Reader::new(value);
    let count = reader.read_map_len().map_err(|_| NO_TYPE)?;
    let mut bytes = Vec::with_capacity(value.len());
    write_map_len(count, &mut bytes);
    for _ in 0..count {
        let key = reader.read_raw().map_err(|_| NO_TYPE)?;
        let field = reader.read_raw().map_err(|_| NO_TYPE)?;
        bytes.extend_from_slice(key);
        if Reader::new(key).read_str_bytes() == Ok(b"type") {
            target.encode_ext3(&mut bytes);
        } else {
            bytes.extend_from_slice(field);
        }
    }
    Value::new(&bytes).map(Some).map_err(|_| NO_TYPE)
}
