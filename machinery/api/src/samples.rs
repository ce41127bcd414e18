//! An object of each kind with every field set, made from the schema alone.

use machinery_schema::{Schema, Shape, Step, Tree, TypeId};

/// Types inside themselves (JSON schemas) are filled this deep.
const DEPTH: usize = 9;

/// A full object of a type. `seed` chooses between the forms a value can have.
pub(crate) fn full(ty: TypeId, seed: usize) -> Tree {
    let mut sample = Sample {
        schema: crate::schema(),
        seed,
        path: Vec::new(),
    };
    let text = sample.value(ty);
    machinery_schema::decode_json(
        crate::schema(),
        ty,
        text.as_bytes(),
        machinery_schema::Strictness::Report,
    )
    .unwrap_or_else(|error| panic!("{error}: {text}"))
    .tree
}

struct Sample {
    schema: &'static Schema,
    seed: usize,
    path: Vec<TypeId>,
}

impl Sample {
    fn pick<'t>(&mut self, of: &[&'t str]) -> &'t str {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        of[(self.seed >> 33) % of.len()]
    }

    fn value(&mut self, id: TypeId) -> String {
        let ty = self.schema.ty(id);
        match ty.shape {
            Shape::Struct => self.object(id),
            Shape::List => format!("[{0},{0}]", self.value(ty.item)),
            Shape::Map => format!(r#"{{"k":{0},"a.b/c":{0}}}"#, self.value(ty.item)),
            Shape::Bool => self.pick(&["true", "false"]).to_owned(),
            Shape::Int32 | Shape::Uint32 => self.pick(&["7", "0", "2147483647"]).to_owned(),
            Shape::Int64 | Shape::Uint64 => self.pick(&["7", "0", "9223372036854775807"]).to_owned(),
            Shape::Float => self.pick(&["1.5", "0", "1e-7"]).to_owned(),
            Shape::Str => self
                .pick(&[r#""text""#, r#""""#, r#""a\"\u003c\n\u00e4""#])
                .to_owned(),
            Shape::Bytes => self.pick(&[r#""aGk=""#, r#""""#]).to_owned(),
            Shape::Quantity => self.pick(&[r#""500m""#, r#""1Gi""#, "3", r#""0.1""#]).to_owned(),
            Shape::Time => self
                .pick(&[
                    r#""2026-01-02T03:04:05Z""#,
                    r#""1960-01-02T03:04:05+01:00""#,
                    "null",
                ])
                .to_owned(),
            Shape::MicroTime => self
                .pick(&[r#""2026-01-02T03:04:05.678901Z""#, "null"])
                .to_owned(),
            Shape::Duration => self.pick(&[r#""90s""#, r#""0s""#]).to_owned(),
            Shape::IntOrString => self.pick(&["80", r#""http""#, "0"]).to_owned(),
            Shape::Raw => self.pick(&[r#"{"z":1,"a":[true,null]}"#, r#""s""#]).to_owned(),
            Shape::Any => self.pick(&["1", r#""s""#]).to_owned(),
            Shape::SchemaOrBool => self.either(ty.item, "false"),
            Shape::SchemaOrArray => {
                let schema = self.value(ty.item);
                self.either(ty.item, &format!("[{schema}]"))
            }
            Shape::SchemaOrStrings => self.either(ty.item, r#"["a","b"]"#),
        }
    }

    fn either(&mut self, schema: TypeId, other: &str) -> String {
        let schema = self.value(schema);
        self.pick(&[&schema, other]).to_owned()
    }

    fn object(&mut self, id: TypeId) -> String {
        if self.path.contains(&id) && self.path.len() > DEPTH
            || self.path.iter().filter(|own| **own == id).count() > 1
        {
            return "{}".to_owned();
        }
        self.path.push(id);
        let mut members = Vec::new();
        // Type meta inside an object is not part of a message.
        for field in self.schema.fields(id).iter().filter(|field| field.number != 0) {
            let value = self.value(field.ty);
            members.push(format!("\"{}\":{value}", self.schema.text(field.name)));
        }
        self.path.pop();
        format!("{{{}}}", members.join(","))
    }
}

/// Sets type meta, which protobuf carries in its envelope.
pub(crate) fn with_type_meta(mut tree: Tree, api_version: &str, kind: &str) -> Tree {
    tree.set(&[Step::Name("apiVersion")], api_version);
    tree.set(&[Step::Name("kind")], kind);
    tree
}
