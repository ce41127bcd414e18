use super::{
    close_envelope, decode_message, decode_protobuf, encode_message, encode_protobuf, open_envelope,
    write_bytes,
};
use crate::testing::{pod_schema, pod_type};
use crate::{DecodeError, FieldSpec, MAX_DEPTH, Schema, SchemaBuilder, Shape, Strictness, Wire, decode_json};
use std::sync::Arc;

const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","generation":-5,"creationTimestamp":"2026-01-02T02:04:05Z","labels":{"a":"","b":"1"},"finalizers":["x","y"]},"spec":{"containers":[{"name":"a","ports":[{"containerPort":80,"protocol":"TCP"}],"resources":{"limits":{"cpu":"500m","memory":"1Gi"}},"livenessProbe":{"httpGet":{"path":"/x","port":"http"},"periodSeconds":3},"stdin":true},{"name":"b","resources":{},"livenessProbe":{"httpGet":{"port":8080}}}],"terminationGracePeriodSeconds":0,"nodeSelector":{"k":"v"},"overhead":{"z":1,"a":[null]},"token":"aGk="},"status":{"phase":"Running","startTime":"1969-12-31T23:59:59Z"}}"#;

#[test]
fn protobuf_object_round_trips() {
    let schema = pod_schema();
    let tree = decode_json(&schema, pod_type(&schema), POD.as_bytes(), Strictness::Ignore)
        .unwrap()
        .tree;
    assert_eq!(tree.root().to_json(), POD);
    let body = encode_protobuf(&tree);
    let envelope = open_envelope(&body).unwrap();
    assert_eq!((envelope.api_version, envelope.kind), ("v1", "Pod"));
    let again = decode_protobuf(&schema, pod_type(&schema), &body).unwrap();
    assert_eq!(again.root().to_json(), POD);
}

#[test]
fn protobuf_cut_and_flipped_input_is_refused() {
    let schema = pod_schema();
    let tree = decode_json(&schema, pod_type(&schema), POD.as_bytes(), Strictness::Ignore)
        .unwrap()
        .tree;
    let body = encode_protobuf(&tree);
    for cut in 0..body.len() {
        let _ = decode_protobuf(&schema, pod_type(&schema), &body[..cut]);
    }
    for at in 0..body.len() {
        for bit in 0..8 {
            let mut other = body.clone();
            other[at] ^= 1 << bit;
            let _ = decode_protobuf(&schema, pod_type(&schema), &other);
        }
    }
}

#[test]
fn protobuf_empty_message_is_zero_value() {
    let schema = pod_schema();
    let tree = decode_protobuf(&schema, pod_type(&schema), &close_envelope("v1", "Pod", b"")).unwrap();
    let expected = r#"{"kind":"Pod","apiVersion":"v1","metadata":{},"spec":{"containers":null},"status":{}}"#;
    assert_eq!(tree.root().to_json(), expected);
    assert!(open_envelope(b"{}").is_err());
}

/// A message within a list is two steps down in a tree.
#[test]
fn protobuf_depth_is_that_of_the_tree() {
    let mut builder = SchemaBuilder::new();
    let id = builder.declare("Branch", "Branch");
    let list = builder.list(id);
    let mut below = FieldSpec::optional("below", list);
    (below.number, below.wire) = (1, Wire::Bytes);
    builder.define_struct(id, vec![below], &[]);
    let schema = Arc::new(builder.finish().unwrap());
    let nested = |messages: usize| {
        let mut message = Vec::new();
        for _ in 1..messages {
            let inner = std::mem::take(&mut message);
            write_bytes(&mut message, 1, &inner);
        }
        decode_message(&schema, id, &message)
    };
    let tree = nested(MAX_DEPTH / 2).unwrap();
    assert_eq!(tree.depth(), MAX_DEPTH - 1);
    let text = tree.root().to_json();
    assert!(decode_json(&schema, id, text.as_bytes(), Strictness::Ignore).is_ok());
    assert_eq!(nested(MAX_DEPTH / 2 + 1).err(), Some(DecodeError::TooDeep));
}

/// Go's generated code takes several numbers in one field, and puts two messages of one field together.
#[test]
fn protobuf_takes_every_form_that_go_takes() {
    let schema = numbers_schema();
    let id = schema.type_named("Numbers").unwrap();
    let read = |message: &[u8]| decode_message(&schema, id, message).unwrap().root().to_json();
    assert_eq!(read(b"\x0a\x03\x01\x96\x01\x08\x05"), r#"{"many":[1,150,5]}"#);
    assert_eq!(read(b"\x0a\x00"), "{}");
    assert!(decode_message(&schema, id, b"\x0a\x02\x01\x96").is_err());
    // `inner` twice, within it `many` goes on and `inner` is merged again.
    let (first, second) = (b"\x12\x04\x08\x01\x12\x00", b"\x12\x06\x08\x02\x12\x02\x08\x03");
    let both = [&first[..], &second[..]].concat();
    assert_eq!(read(&both), r#"{"inner":{"many":[1,2],"inner":{"many":[3]}}}"#);
}

/// A message that comes in two parts at each level is read once.
#[test]
fn protobuf_parts_of_messages_are_read_once() {
    let schema = numbers_schema();
    let id = schema.type_named("Numbers").unwrap();
    let mut message = b"\x08\x07".to_vec();
    for _ in 0..100 {
        let inner = std::mem::take(&mut message);
        write_bytes(&mut message, 2, &inner);
        write_bytes(&mut message, 2, b"\x08\x01");
    }
    let tree = decode_message(&schema, id, &message).unwrap();
    assert_eq!(tree.depth(), 102);
    assert!(tree.arena_bytes() < 16_000, "{}", tree.arena_bytes());
    let mut again = Vec::new();
    encode_message(tree.root(), &mut again);
    let back = decode_message(&schema, id, &again).unwrap();
    assert_eq!(back.root().to_json(), tree.root().to_json());
}

fn numbers_schema() -> Arc<Schema> {
    let mut builder = SchemaBuilder::new();
    let id = builder.declare("Numbers", "Numbers");
    let int = builder.leaf(Shape::Int64, "int64");
    let list = builder.list(int);
    let mut many = FieldSpec::optional("many", list);
    (many.number, many.wire) = (1, Wire::Varint);
    let mut inner = FieldSpec::optional("inner", id);
    (inner.number, inner.wire, inner.pointer) = (2, Wire::Bytes, true);
    builder.define_struct(id, vec![many, inner], &[]);
    Arc::new(builder.finish().unwrap())
}
