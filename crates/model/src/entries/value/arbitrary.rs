//! Random MessagePack values for property tests.

use proptest::prelude::*;
use rmpv::Value as Rmpv;

/// Any value, nested up to four deep.
pub fn any_rmpv() -> impl Strategy<Value = Rmpv> {
    let scalar = prop_oneof![
        Just(Rmpv::Nil),
        any::<bool>().prop_map(Rmpv::from),
        any::<u64>().prop_map(Rmpv::from),
        any::<i64>().prop_map(Rmpv::from),
        (-200..70_000_i32).prop_map(Rmpv::from),
        any::<f32>().prop_map(Rmpv::F32),
        any::<f64>().prop_map(Rmpv::F64),
        "\\PC{0,40}".prop_map(Rmpv::from),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Rmpv::Binary),
        (any::<i8>(), proptest::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(kind, bytes)| Rmpv::Ext(kind, bytes)),
    ];
    scalar.prop_recursive(4, 64, 20, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..20).prop_map(Rmpv::Array),
            proptest::collection::vec((inner.clone(), inner), 0..20).prop_map(Rmpv::Map),
        ]
    })
}
