use super::{close_envelope, decode_message, decode_protobuf, encode_protobuf, open_envelope, write_bytes};
use crate::testing::{pod_schema, pod_type};
use crate::{DecodeError, FieldSpec, MAX_DEPTH, SchemaBuilder, Strictness, Wire, decode_json};
use std::sync::Arc;

const POD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","generation":-5,"creationTimestamp":"2026-01-02T02:04:05Z","labels":{"a":"","b":"1"},"finalizers":["x","y"]},"spec":{"containers":[{"name":"a","ports":[{"containerPort":80,"protocol":"TCP"}],"resources":{"limits":{"cpu":"500m","memory":"1Gi"}},"livenessProbe":{"httpGet":{"path":"/x","port":"http"},"periodSeconds":3},"stdin":true},{"name":"b","resources":{},"livenessProbe":{"httpGet":{"port":8080}}}],"terminationGracePeriodSeconds":0,"nodeSelector":{"k":"v"},"overhead":{"z":1,"a":[null]},"token":"aGk="},"status":{"phase":"Running","startTime":"1969-12-31T23:59:59Z"}}"#;

#[test]
fn an_object_survives_the_way_there_and_back() {
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
fn every_cut_and_every_flip_is_answered() {
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
fn an_empty_message_is_the_zero_value() {
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
