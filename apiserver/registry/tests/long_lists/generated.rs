//! Every list and every map of every built-in kind, made long.

use crate::verbs::create_and_update;
use apiserver_registry::{ResourceRow, kinds};
use machinery_fuzz::growth;
use machinery_schema::{Schema, Shape, TypeId};
use std::collections::HashSet;

/// Long enough that a search for each item costs more than all else. All lists of three megabytes would take an hour.
const BYTES: usize = 48 << 10;
/// Lists within lists go no deeper than the deepest one of a pod.
const MAX_DEPTH: usize = 12;

/// A list or a map, and what stands around it in an object.
struct Place {
    name: String,
    before: String,
    after: String,
    ty: TypeId,
}

struct Places<'s> {
    schema: &'s Schema,
    found: Vec<Place>,
    /// Fields of types that several kinds have.
    seen: &'s mut HashSet<(String, TypeId, usize)>,
}

impl Places<'_> {
    fn below(&mut self, ty: TypeId, name: &str, (before, after): (&str, &str), depth: usize) {
        let fields: Vec<(usize, String, TypeId)> = (0..)
            .map_while(|at| self.schema.field_at(ty, at).map(|field| (at, field)))
            .map(|(at, field)| (at, self.schema.text(field.name).to_owned(), field.ty))
            .collect();
        for (at, field, own) in fields {
            let is_new =
                depth < MAX_DEPTH && self.seen.insert((self.schema.struct_name(ty).to_owned(), ty, at));
            if is_new {
                let before = format!("{before}{{\"{field}\":");
                self.value(
                    own,
                    &format!("{name}.{field}"),
                    (&before, &format!("}}{after}")),
                    depth + 1,
                );
            }
        }
    }

    fn value(&mut self, ty: TypeId, name: &str, around: (&str, &str), depth: usize) {
        let own = self.schema.ty(ty);
        let item = own.item;
        let (open, close) = match own.shape {
            Shape::Struct => return self.below(ty, name, around, depth),
            Shape::List => ("[", "]"),
            Shape::Map => ("{\"k\":", "}"),
            _ => return,
        };
        let (before, after) = around;
        self.found.push(Place {
            name: name.to_owned(),
            before: before.to_owned(),
            after: after.to_owned(),
            ty,
        });
        self.value(
            item,
            name,
            (&format!("{before}{open}"), &format!("{close}{after}")),
            depth,
        );
    }
}

/// A value with this number in each of its texts.
fn sample(schema: &Schema, ty: TypeId, number: usize, depth: usize) -> String {
    let own = schema.ty(ty);
    match own.shape {
        Shape::Str => format!("\"n{number}\""),
        Shape::Bool => "true".to_owned(),
        Shape::Int32 | Shape::Int64 | Shape::Uint32 | Shape::Uint64 | Shape::Float | Shape::IntOrString => {
            number.to_string()
        }
        Shape::Quantity => format!("\"{number}\""),
        Shape::Struct if depth > 0 => {
            let fields = schema.fields(ty).iter();
            let simple = fields.filter(|field| is_simple(schema, field.ty, depth - 1));
            let members = simple.map(|field| {
                let value = sample(schema, field.ty, number, depth - 1);
                format!("\"{}\":{value}", schema.text(field.name))
            });
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        Shape::Map => format!("{{\"n{number}\":{}}}", sample(schema, own.item, number, 0)),
        Shape::List => format!("[{}]", sample(schema, own.item, number, 0)),
        _ => "null".to_owned(),
    }
}

fn is_simple(schema: &Schema, ty: TypeId, depth: usize) -> bool {
    match schema.ty(ty).shape {
        Shape::Str | Shape::Bool | Shape::Quantity => true,
        Shape::Int32 | Shape::Int64 | Shape::Uint32 | Shape::Uint64 | Shape::Float | Shape::IntOrString => {
            true
        }
        Shape::Struct => depth > 0,
        _ => false,
    }
}

/// The object with items of these numbers.
fn body(schema: &Schema, place: &Place, bytes: usize, number: impl Fn(usize) -> usize) -> String {
    let is_map = schema.ty(place.ty).shape == Shape::Map;
    let item = schema.ty(place.ty).item;
    let mut text = place.before.clone();
    text.push(if is_map { '{' } else { '[' });
    for at in 0.. {
        if is_map {
            text.push_str(&format!("\"k{}\":", number(at) + at));
        }
        text.push_str(&sample(schema, item, number(at), 2));
        if text.len() >= bytes {
            break;
        }
        text.push(',');
    }
    text.push(if is_map { '}' } else { ']' });
    text.push_str(&place.after);
    text
}

fn wrong(row: &ResourceRow, place: &Place) -> Vec<String> {
    let mut problems = Vec::new();
    for (how, step) in [("of its own", 1), ("the same", 0)] {
        let beyond = growth(BYTES, |stages, bytes| {
            let text = |from: usize| body(&row.schema, place, bytes, |at| from + at * step);
            create_and_update(stages, row, (&text(1), &text(2)), true);
        });
        let told = beyond.into_iter();
        problems
            .extend(told.map(|beyond| format!("{}{} with items {how}: {beyond}", row.gvk.kind, place.name)));
    }
    problems
}

/// The lists of kinds whose place among all leaves this rest, so that they are looked at side by side.
pub(crate) fn check(part: usize, of: usize) {
    let mut seen = HashSet::new();
    let mut rows = kinds::built_in_rows();
    // Other kinds have pods in them.
    rows.sort_by_key(|row| row.gvk.kind != "Pod");
    let mut problems = Vec::new();
    let mut at = 0;
    for row in &rows {
        let mut places = Places {
            schema: &row.schema,
            found: Vec::new(),
            seen: &mut seen,
        };
        places.below(row.ty, "", ("", ""), 0);
        for place in places.found {
            at += 1;
            if at % of == part {
                problems.extend(wrong(row, &place));
            }
        }
    }
    assert!(at > 100, "{at} lists were found");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
