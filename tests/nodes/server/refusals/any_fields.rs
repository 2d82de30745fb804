//! Requests with whatever fields in whatever combination: each is carried out or refused, the connection stays, and so
//! does the node. What an action's documentation names together is tested elsewhere; here, what nobody asks for.

use distkv::protocol::client::action::Action;
use distkv::protocol::client::field::Field;
use proptest::prelude::*;

use crate::harness::{Client, Node, Value, array, has, path};

/// Most requests of one case.
const REQUESTS: usize = 12;

/// How many cases. `PROPTEST_CASES` does not count here: each starts a node.
const CASES: u32 = 1_000;

/// A value of a kind that the field can have; sometimes of another one.
fn value_of(field: Field) -> BoxedStrategy<Value> {
    let usual = match field {
        Field::Path => prop_oneof![
            4 => prop::collection::vec(element(), 0..5).prop_map(Value::Array),
            1 => Just(Value::Array(vec![Value::from("a"); 65])),
        ]
        .boxed(),
        Field::Chain => prop_oneof![Just(Value::Nil), chain()].boxed(),
        Field::Topic => prop::collection::vec("[a#+]", 0..3).prop_map(array).boxed(),
        Field::Ops => {
            prop::collection::vec(request(vec![Field::Path, Field::Value, Field::Prev]), 0..20)
                .prop_map(Value::Array)
                .boxed()
        }
        Field::Node => prop_oneof![Just("n1"), Just("n1~1"), Just("n2"), Just("")]
            .prop_map(Value::from)
            .boxed(),
        Field::Nodes | Field::Known | Field::Deleted => prop_oneof![
            Just(Value::from(true)),
            (0_u64..9, 0_u64..9).prop_map(|(from, to)| map! {"n1": array([array([from, to])])}),
        ]
        .boxed(),
        Field::Typ | Field::Kind | Field::Acl | Field::Ident | Field::Mode | Field::Format => {
            prop_oneof![Just("user"), Just("root"), Just("_null"), Just("r"), Just("")]
                .prop_map(Value::from)
                .boxed()
        }
        Field::Wid | Field::Nonce | Field::Pubkey | Field::Secret | Field::Proof => {
            prop::collection::vec(0_u8..3, 0..40).prop_map(Value::Binary).boxed()
        }
        _ => prop_oneof![
            4 => Just(Value::from(true)),
            1 => (0_u64..300).prop_map(Value::from),
            1 => Just(Value::from(u64::MAX)),
        ]
        .boxed(),
    };
    prop_oneof![12 => usual, 1 => any_value()].boxed()
}

/// What could switch logins on is left out: then this client would be refused.
fn element() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => "[abc]".prop_map(Value::from),
        1 => prop_oneof![Just("acl"), Just("type"), Just("match")].prop_map(Value::from),
        2 => Just(Value::Nil),
        1 => any_value(),
    ]
}

fn chain() -> impl Strategy<Value = Value> {
    let event = (0_u64..9).prop_map(|tick| map! {"node": "n1~1", "tick": tick});
    event.prop_recursive(9, 9, 1, |below| {
        (0_u64..9, below).prop_map(|(tick, prev)| map! {"node": "n2~5", "tick": tick, "prev": prev})
    })
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..4).prop_map(Value::Binary),
        any::<i8>().prop_map(|code| Value::Ext(code, vec![1, 2])),
    ];
    leaf.prop_recursive(3, 12, 4, |below| {
        prop_oneof![
            prop::collection::vec(below.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((below.clone(), below), 0..4).prop_map(Value::Map),
        ]
    })
}

/// All actions but the one that ends the node, and the one that may end the connection (docs/client-protocol.md, "Logging
/// in").
fn actions() -> Vec<Action> {
    let is_meant = |action: &Action| !matches!(action, Action::Leave | Action::DiffieHellman);
    Action::ALL.iter().copied().filter(is_meant).collect()
}

/// A request for any of them, with some of these fields.
fn request(fields: Vec<Field>) -> impl Strategy<Value = Value> {
    let counts = prop_oneof![6 => 0..=5.min(fields.len()), 1 => 0..=fields.len()];
    let some = counts.prop_flat_map(move |count| prop::sample::subsequence(fields.clone(), count));
    let with_values = some.prop_flat_map(|fields| {
        let pairs: Vec<_> = fields
            .into_iter()
            .map(|field| (Just(Value::from(field.name())), value_of(field)))
            .collect();
        pairs
    });
    (prop::sample::select(actions()), with_values).prop_map(|(action, mut pairs)| {
        pairs.push(("action".into(), action.name().into()));
        Value::Map(pairs)
    })
}

/// All fields but those that say which request it is.
fn free() -> Vec<Field> {
    let is_free = |field: &Field| !matches!(field, Field::Action | Field::Seq);
    Field::ALL.iter().copied().filter(is_free).collect()
}

/// The node takes part in the conversation after this.
fn is_heard(client: &mut Client, request: Value) {
    let shown = request.to_string();
    client.start(request);
    let seq = client.start(map! {"action": "get_tock"});
    let mut last = Value::Nil;
    while last["seq"].as_u64() != Some(seq) {
        let Some(next) = client.receive() else {
            panic!("after {shown}, the connection ends with {last}");
        };
        last = next;
    }
    assert!(last["tock"].is_u64() && !has(&last, "error"), "{shown}: {last}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_request_with_whatever_fields_is_answered(
        requests in prop::collection::vec(request(free()), 1..REQUESTS)
    ) {
        let node = Node::found("n1");
        let (mut client, mut bystander) = (node.connect(), node.connect());
        for request in requests {
            is_heard(&mut client, request);
        }
        bystander.ok(map! {"action": "set_value", "path": path("a"), "value": 1});
    }
}

#[test]
fn a_request_with_all_fields_is_answered() {
    let node = Node::found("n1");
    let mut client = node.connect();
    let all: Vec<_> = free().iter().map(|field| (field.name().into(), true.into())).collect();
    for action in actions() {
        let action = ("action".into(), action.name().into());
        is_heard(&mut client, Value::Map(all.iter().cloned().chain([action]).collect()));
    }
}
