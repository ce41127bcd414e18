//! Values without children.

use super::Decoder;
use crate::json::DecodeError;
use crate::leaf;
use crate::table::{Shape, TypeId};
use crate::tree::{Node, narrow};

impl Decoder<'_> {
    pub(super) fn raw(&mut self) -> Result<Node, DecodeError> {
        let start = self.scan.at;
        self.scan.skip(self.depth)?;
        let input = self.scan.slice(start, self.scan.at);
        if !input.bytes().any(|byte| byte.is_ascii_whitespace()) {
            return Ok(Node::raw((narrow(start), narrow(input.len()))));
        }
        let compact = leaf::compact_json(input);
        Ok(Node::raw(self.tree.push_text(&compact)))
    }

    pub(super) fn string(&mut self, id: TypeId, shape: Shape) -> Result<Node, DecodeError> {
        let literal = self.scan.string()?;
        if matches!(shape, Shape::Str | Shape::Any | Shape::IntOrString) {
            return self.literal_span(literal).map(Node::str);
        }
        if !self.schema.ty(id).typed {
            return self.literal_span(literal).map(Node::str);
        }
        if !leaf::is_text(shape) {
            return self.mismatched(id, shape, "string");
        }
        let text = self.literal_text(literal)?;
        match leaf::canonical(shape, &text).map_err(DecodeError::Value)? {
            Some(other) => Ok(Node::str(self.tree.push_text(&other))),
            None => self.literal_span(literal).map(Node::str),
        }
    }

    pub(super) fn boolean(&mut self, id: TypeId, shape: Shape, value: bool) -> Node {
        if matches!(shape, Shape::Bool | Shape::Any | Shape::SchemaOrBool) || !self.schema.ty(id).typed {
            return Node::bool(value);
        }
        self.wrong(id, "bool");
        self.tree.zero(id, self.depth)
    }

    pub(super) fn number(&mut self, id: TypeId, shape: Shape) -> Result<Node, DecodeError> {
        let number = self.scan.number()?;
        let text = self.scan.slice(number.start, number.end);
        let whole = if number.whole {
            text.parse::<i64>().ok()
        } else {
            None
        };
        if shape == Shape::Any || !self.schema.ty(id).typed {
            return self.free_number(whole, text);
        }
        let fits = |least: i64, most: i64| whole.filter(|value| (least..=most).contains(value));
        let value = match shape {
            Shape::Int32 | Shape::IntOrString => fits(i64::from(i32::MIN), i64::from(i32::MAX)),
            Shape::Int64 => whole,
            Shape::Uint32 => fits(0, i64::from(u32::MAX)),
            Shape::Uint64 => fits(0, i64::MAX),
            Shape::Float => return Ok(Node::float(text.parse().unwrap_or(0.0))),
            Shape::Quantity => {
                let canonical = leaf::canonical(shape, text).map_err(DecodeError::Value)?;
                return Ok(Node::str(
                    self.tree.push_text(canonical.as_deref().unwrap_or(text)),
                ));
            }
            _ => return self.mismatched(id, shape, "number"),
        };
        if value.is_none() {
            self.wrong(id, &format!("number {text}"));
        }
        Ok(Node::int(value.unwrap_or(0)))
    }

    fn free_number(&mut self, whole: Option<i64>, text: &str) -> Result<Node, DecodeError> {
        if let Some(whole) = whole {
            return Ok(Node::int(whole));
        }
        match text.parse::<f64>() {
            // Zero has no sign.
            Ok(value) if value.is_finite() => Ok(Node::float(value + 0.0)),
            _ => {
                let context = self.strict.go_context(self.schema, "float64");
                Err(DecodeError::Type(format!(
                    "json: cannot unmarshal number {text} {context}"
                )))
            }
        }
    }

    /// A scalar where the type has none.
    #[cold]
    fn mismatched(&mut self, id: TypeId, shape: Shape, what: &str) -> Result<Node, DecodeError> {
        match shape {
            Shape::SchemaOrBool => Err(DecodeError::Value("boolean or JSON schema expected".to_owned())),
            Shape::SchemaOrArray | Shape::SchemaOrStrings => Ok(Node::NULL),
            _ => {
                self.wrong(id, what);
                Ok(self.tree.zero(id, self.depth))
            }
        }
    }
}
