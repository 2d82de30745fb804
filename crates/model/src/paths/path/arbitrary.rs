//! Random paths for property tests: every type of element, and the edges of each.

#![allow(missing_docs, reason = "the same names as in `Element`")]
#![allow(clippy::unwrap_used, reason = "for tests: what is made here is valid")]

use proptest::prelude::*;

use crate::limits::PATH_NESTING_MAX;
use crate::path::{Array, Element, Path};

/// An element that owns its content.
#[derive(Debug, Clone, PartialEq)]
pub enum OwnedElement {
    Nil,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
    Bin(Vec<u8>),
    /// The items, one after the other, in canonical form.
    Array(Vec<u8>),
}

impl OwnedElement {
    pub fn borrow(&self) -> Element<'_> {
        match self {
            OwnedElement::Nil => Element::Nil,
            OwnedElement::Bool(value) => Element::Bool(*value),
            OwnedElement::Int(number) => Element::Int(*number),
            OwnedElement::Float(number) => Element::Float(*number),
            OwnedElement::Str(text) => Element::Str(text),
            OwnedElement::Bin(bytes) => Element::Bin(bytes),
            OwnedElement::Array(items) => Element::Array(Array::from_items(items).unwrap()),
        }
    }
}

/// The integers at which encodings change.
const EDGES: [i128; 22] = [
    0,
    1,
    -1,
    127,
    128,
    255,
    256,
    65535,
    65536,
    -32,
    -33,
    -128,
    -129,
    -32768,
    -32769,
    0xffff_ffff,
    0x1_0000_0000,
    -0x8000_0000,
    -0x8000_0001,
    u64::MAX as i128,
    i64::MAX as i128,
    i64::MIN as i128,
];

/// An array of these.
pub(crate) fn array_of(items: &[OwnedElement]) -> OwnedElement {
    let mut bytes = Vec::new();
    for item in items {
        item.borrow().normalise().unwrap().encode(&mut bytes);
    }
    OwnedElement::Array(bytes)
}

/// Any element but nil.
pub(crate) fn element() -> impl Strategy<Value = OwnedElement> {
    let item = prop_oneof![Just(OwnedElement::Nil), scalar()];
    let array = |item: BoxedStrategy<OwnedElement>| {
        proptest::collection::vec(item, 0..4).prop_map(|items| array_of(&items))
    };
    let nested = item.prop_recursive(PATH_NESTING_MAX as u32 - 1, 30, 4, array);
    prop_oneof![
        4 => scalar(),
        1 => proptest::collection::vec(nested, 0..4).prop_map(|items| array_of(&items)),
    ]
}

/// Any element but nil and arrays.
fn scalar() -> impl Strategy<Value = OwnedElement> {
    prop_oneof![
        any::<bool>().prop_map(OwnedElement::Bool),
        proptest::sample::select(&EDGES[..]).prop_map(OwnedElement::Int),
        any::<i64>().prop_map(|number| OwnedElement::Int(number.into())),
        any::<u64>().prop_map(|number| OwnedElement::Int(number.into())),
        any::<f64>().prop_filter("a number", |n| !n.is_nan()).prop_map(OwnedElement::Float),
        Just(OwnedElement::Float(f64::INFINITY)),
        "[a-c]{0,2}".prop_map(OwnedElement::Str),
        "[.: _etfnxbvy0-9-]{0,6}".prop_map(OwnedElement::Str),
        "\\PC{0,40}".prop_map(OwnedElement::Str),
        any::<String>().prop_map(OwnedElement::Str),
        "[ -~]{0,6}".prop_map(|text| OwnedElement::Bin(text.into_bytes())),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(OwnedElement::Bin),
    ]
}

/// What a path can be made of: perhaps nil, then other elements.
pub(crate) fn elements() -> impl Strategy<Value = Vec<OwnedElement>> {
    (proptest::bool::weighted(0.1), proptest::collection::vec(element(), 0..6)).prop_map(
        |(system, mut elements)| {
            if system {
                elements.insert(0, OwnedElement::Nil);
            }
            elements
        },
    )
}

/// Any path.
pub fn path() -> impl Strategy<Value = Path> {
    elements().prop_map(|elements| {
        Path::from_elements(elements.iter().map(OwnedElement::borrow)).unwrap()
    })
}

/// Paths of few and short elements, so that two of them are often related.
pub fn small_path() -> impl Strategy<Value = Path> {
    let element = prop_oneof![
        4 => "[ab]{0,2}".prop_map(OwnedElement::Str),
        1 => (-1..2_i128).prop_map(OwnedElement::Int),
        1 => any::<bool>().prop_map(OwnedElement::Bool),
        1 => (0..2_u8).prop_map(|n| OwnedElement::Float(n.into())),
        1 => "[ab]{0,2}".prop_map(|text| OwnedElement::Bin(text.into_bytes())),
    ];
    let array = proptest::collection::vec(element.clone(), 0..3).prop_map(|items| array_of(&items));
    let element = prop_oneof![6 => element, 1 => array];
    proptest::collection::vec(element, 0..4).prop_map(|elements| {
        Path::from_elements(elements.iter().map(OwnedElement::borrow)).unwrap()
    })
}
