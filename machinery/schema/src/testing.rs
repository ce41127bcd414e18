//! A small table for tests: pod-like types with every attribute that the engines request.

use crate::table::{FieldSpec, Group, ListType, Schema, SchemaBuilder, Shape, TypeId, Wire};
use std::sync::Arc;

fn numbered(mut spec: FieldSpec, number: u16, wire: Wire) -> FieldSpec {
    (spec.number, spec.wire) = (number, wire);
    spec
}

fn pointer(mut spec: FieldSpec) -> FieldSpec {
    spec.pointer = true;
    spec
}

fn gated(mut spec: FieldSpec) -> FieldSpec {
    spec.feature_gate = "Stdin".to_owned();
    spec
}

/// `ObjectMeta` and pod-like types; `v1.Pod` is the root.
pub(crate) fn pod_schema() -> Arc<Schema> {
    let mut b = SchemaBuilder::new();
    let string = b.leaf(Shape::Str, "string");
    let int32 = b.leaf(Shape::Int32, "int32");
    let int64 = b.leaf(Shape::Int64, "int64");
    let boolean = b.leaf(Shape::Bool, "bool");
    let time = b.leaf(Shape::Time, "v1.Time");
    let quantity = b.leaf(Shape::Quantity, "resource.Quantity");
    let int_or_string = b.leaf(Shape::IntOrString, "intstr.IntOrString");
    let raw = b.leaf(Shape::Raw, "runtime.RawExtension");
    let bytes = b.leaf(Shape::Bytes, "[]uint8");
    let strings = b.map(string);
    let string_list = b.list(string);
    let quantities = b.map(quantity);
    let meta = object_meta(&mut b, [string, int64, time, strings, string_list]);
    let text = |name: &str, number| numbered(FieldSpec::optional(name, string), number, Wire::Bytes);

    let probe = b.declare("v1.Probe", "v1.Probe");
    let get = b.declare("v1.HTTPGetAction", "v1.HTTPGetAction");
    let port = FieldSpec::always("port", int_or_string);
    b.define_struct(get, vec![text("path", 1), numbered(port, 2, Wire::Bytes)], &[]);
    let mut http = pointer(FieldSpec::optional("httpGet", get));
    (http.number, http.wire, http.group) = (2, Wire::Bytes, 1);
    let period = numbered(FieldSpec::optional("periodSeconds", int32), 4, Wire::Varint);
    let handler = Group {
        name: b.intern("ProbeHandler"),
        number: 1,
        parent: 0,
    };
    b.define_struct(probe, vec![http, period], &[handler]);

    let resources = b.declare("v1.ResourceRequirements", "v1.ResourceRequirements");
    let limits = numbered(FieldSpec::optional("limits", quantities), 1, Wire::Bytes);
    b.define_struct(resources, vec![limits], &[]);

    let container_port = b.declare("v1.ContainerPort", "v1.ContainerPort");
    let mut protocol = text("protocol", 4);
    protocol.default = "\"TCP\"".to_owned();
    let number = numbered(FieldSpec::always("containerPort", int32), 3, Wire::Varint);
    b.define_struct(container_port, vec![text("name", 1), number, protocol], &[]);
    let ports = b.list(container_port);

    let env = b.declare("v1.EnvVar", "v1.EnvVar");
    let name = numbered(FieldSpec::always("name", string), 1, Wire::Bytes);
    b.define_struct(env, vec![name.clone(), text("value", 2)], &[]);
    let envs = b.list(env);

    let container = b.declare("v1.Container", "v1.Container");
    let fields = vec![
        name,
        text("image", 2),
        numbered(FieldSpec::optional("command", string_list), 3, Wire::Bytes),
        merged(
            numbered(FieldSpec::optional("ports", ports), 6, Wire::Bytes),
            "containerPort",
        ),
        merged(numbered(FieldSpec::optional("env", envs), 7, Wire::Bytes), "name"),
        numbered(FieldSpec::optional("resources", resources), 8, Wire::Bytes),
        pointer(numbered(
            FieldSpec::optional("livenessProbe", probe),
            10,
            Wire::Bytes,
        )),
        gated(numbered(FieldSpec::optional("stdin", boolean), 16, Wire::Varint)),
    ];
    b.define_struct(container, fields, &[]);
    let containers = b.list(container);

    let spec = b.declare("v1.PodSpec", "v1.PodSpec");
    let selector = FieldSpec::optional("nodeSelector", strings);
    let fields = vec![
        merged(
            numbered(FieldSpec::always("containers", containers), 2, Wire::Bytes),
            "name",
        ),
        text("restartPolicy", 3),
        pointer(numbered(
            FieldSpec::optional("terminationGracePeriodSeconds", int64),
            4,
            Wire::Varint,
        )),
        numbered(selector, 7, Wire::Bytes),
        pointer(numbered(FieldSpec::optional("overhead", raw), 32, Wire::Bytes)),
        pointer(numbered(FieldSpec::optional("token", bytes), 33, Wire::Bytes)),
    ];
    b.define_struct(spec, fields, &[]);

    let status = b.declare("v1.PodStatus", "v1.PodStatus");
    let started = pointer(numbered(FieldSpec::optional("startTime", time), 7, Wire::Bytes));
    b.define_struct(status, vec![text("phase", 1), started], &[]);

    let pod = b.declare("v1.Pod", "v1.Pod");
    let fields = vec![
        FieldSpec::optional("kind", string),
        FieldSpec::optional("apiVersion", string),
        numbered(FieldSpec::optional("metadata", meta), 1, Wire::Bytes),
        numbered(FieldSpec::optional("spec", spec), 2, Wire::Bytes),
        numbered(FieldSpec::optional("status", status), 3, Wire::Bytes),
    ];
    b.define_struct(pod, fields, &[]);
    Arc::new(b.finish().expect("the test table is complete"))
}

fn merged(mut spec: FieldSpec, key: &str) -> FieldSpec {
    spec.list_type = ListType::Map;
    spec.map_keys = vec![key.to_owned()];
    (spec.patch_strategy, spec.patch_merge_key) = ("merge".to_owned(), key.to_owned());
    spec
}

fn object_meta(b: &mut SchemaBuilder, [string, int64, time, strings, list]: [TypeId; 5]) -> TypeId {
    let text = |name: &str, number| numbered(FieldSpec::optional(name, string), number, Wire::Bytes);
    let meta = b.declare("v1.ObjectMeta", "v1.ObjectMeta");
    let mut created = numbered(FieldSpec::optional("creationTimestamp", time), 8, Wire::Bytes);
    created.omitzero = true;
    let mut finalizers = numbered(FieldSpec::optional("finalizers", list), 14, Wire::Bytes);
    (finalizers.list_type, finalizers.patch_strategy) = (ListType::Set, "merge".to_owned());
    let fields = vec![
        text("name", 1),
        text("generateName", 2),
        text("namespace", 3),
        text("uid", 5),
        text("resourceVersion", 6),
        numbered(FieldSpec::optional("generation", int64), 7, Wire::Varint),
        created,
        pointer(numbered(
            FieldSpec::optional("deletionTimestamp", time),
            9,
            Wire::Bytes,
        )),
        numbered(FieldSpec::optional("labels", strings), 11, Wire::Bytes),
        numbered(FieldSpec::optional("annotations", strings), 12, Wire::Bytes),
        finalizers,
    ];
    b.define_struct(meta, fields, &[]);
    meta
}

pub(crate) fn pod_type(schema: &Schema) -> TypeId {
    schema.type_named("v1.Pod").expect("the test table has it")
}
