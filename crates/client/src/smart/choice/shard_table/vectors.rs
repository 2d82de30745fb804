//! The vectors of the table of shards.

use serde_json::{Value as Json, json};

use super::*;
use crate::model::value::write_array_len;
use crate::retry::vectors::{compare, hex};

#[test]
fn the_table_of_shards_is_read_as_its_vectors_say() {
    let row = |first: u16, last: u16, prefer: Option<&str>| {
        let mut fields = Fields::new();
        let start = u128::from(first) << 118;
        let end = ((u128::from(last) + 1) << 118).wrapping_sub(1);
        fields.bin("start", &start.to_be_bytes()).bin("end", &end.to_be_bytes());
        fields.u64("id", u64::from(first) << 40 | u64::from(last)).u64("first", first.into());
        fields.u64("last", last.into()).nil("of a later version");
        match prefer {
            Some(name) => fields.str("prefer", name),
            None => fields.nil("prefer"),
        };
        fields
    };
    let pages = [
        (vec![row(0, 1023, None)], None),
        (vec![row(0, 4, None), row(5, 5, Some("n1")), row(6, 511, Some("é"))], Some([0x7f; 16])),
        (vec![row(512, 1023, Some("n2"))], None),
        (vec![], None),
    ];
    let rows: Vec<Json> = pages
        .iter()
        .map(|(rows, next)| {
            let mut list = Vec::new();
            write_array_len(rows.len(), &mut list);
            rows.iter().for_each(|row| list.extend_from_slice(&row.encode()));
            let mut reply = Fields::new();
            reply.raw("result", &list);
            match next {
                Some(next) => reply.bin("next", next),
                None => reply.nil("next"),
            };
            let reply = reply.encode();
            let page = page_of(&Message::new(&reply).unwrap()).unwrap();
            let shown = page.rows.iter().map(|row| {
                json!({
                    "id": row.id.to_string(), "start": hex(&row.start.to_be_bytes()), "end": hex(&row.end.to_be_bytes()),
                    "first": row.first, "last": row.last, "prefer": row.prefer,
                })
            });
            json!({
                "reply": hex(&reply), "rows": shown.collect::<Vec<_>>(),
                "next": page.next.map(|next| hex(&next.to_be_bytes())),
            })
        })
        .collect();
    let about =
        "A page of the table of shards as a node sends it (MessagePack), and how it is read.";
    compare("shard_pages", about, &rows);
}
