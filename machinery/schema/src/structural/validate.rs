//! Values of a custom kind against its schema, in kube-openapi's order and words.

use super::bounds::{MAX_STEPS, Validation};
use super::lists::OldItems;
use super::{Constraints, format};
use crate::leaf::go_quote;
use crate::tree::{Kind, Ref};
use machinery_meta::field::Shown;
use machinery_meta::{FieldError, FieldErrorKind, FieldPath};

/// Everything wrong with an object; with an old one, what did not change since is let pass.
pub fn validate(object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<FieldError> {
    let mut found = Validation::new(MAX_STEPS);
    found.structure(object, old, "");
    found.unique(object, &FieldPath::root());
    found.finish()
}

/// Everything wrong with the default of a value; paths begin at the value.
pub(super) fn validate_default(value: Ref<'_>) -> Vec<FieldError> {
    let mut found = Validation::new(MAX_STEPS);
    if value.kind() == Kind::Map && value.schema().ty(value.ty()).embedded {
        found.embedded(value, "");
    }
    if found.errors.is_empty() {
        found.structure(value, None, "");
    }
    found.finish()
}

impl Validation {
    /// A value and what is below it, by the types of the schema.
    fn structure(&mut self, value: Ref<'_>, old: Option<Ref<'_>>, path: &str) {
        if !self.step(path.len()) || old.is_some_and(|old| old == value) && !path.is_empty() {
            return;
        }
        let ty = value.schema().ty(value.ty());
        let constraints = value.schema().constraints(value.ty());
        if let Some(constraints) = constraints
            && !self.constraints(value, constraints, path)
        {
            return;
        }
        // Metadata and the like follow upstream's own types and are validated as such.
        if ty.typed && value.ty() != crate::TypeId::ANY {
            return;
        }
        match value.kind() {
            Kind::List => {
                let old = OldItems::of(old, constraints);
                for (index, item) in value.items().enumerate() {
                    let old = old.as_ref().and_then(|old| old.get(item));
                    self.structure(item, old, &format!("{path}[{index}]"));
                }
                if let Some(constraints) = constraints {
                    self.list(value, constraints, path);
                }
            }
            Kind::Map => {
                if ty.embedded && !path.is_empty() {
                    self.embedded(value, path);
                }
                for (name, member) in value.entries() {
                    self.structure(member, old.and_then(|old| old.get(name)), &joined(path, name));
                }
            }
            _ => {}
        }
    }

    /// An object within the object says what it is.
    fn embedded(&mut self, value: Ref<'_>, path: &str) {
        for name in ["apiVersion", "kind"] {
            let at = at(&joined(path, name));
            match value.get(name).map(|own| (own, own.as_str())) {
                None => self.push(FieldError::required(&at, "")),
                Some((_, Some(""))) => self.push(FieldError::invalid(&at, "", "must not be empty")),
                Some((_, Some(_))) => {}
                Some((own, None)) => {
                    self.push(FieldError::invalid(&at, Shown(own.to_json()), "must be a string"));
                }
            }
        }
    }

    /// Notes a value's violations of one schema; returns false when the value is of another type altogether.
    pub(super) fn constraints(&mut self, value: Ref<'_>, schema: &Constraints, path: &str) -> bool {
        if !self.step(path.len()) {
            return false;
        }
        if !self.type_of(value, schema, path) {
            if matches!(value.kind(), Kind::Int | Kind::Float) {
                self.number(value, schema, path);
            }
            self.one_of_enum(value, schema, path);
            return false;
        }
        if value.is_null() {
            self.one_of_enum(value, schema, path);
            return true;
        }
        self.junctors(value, schema, path);
        match value.kind() {
            Kind::String => self.string(value.as_str().unwrap_or_default(), schema, path),
            Kind::Int | Kind::Float => self.number(value, schema, path),
            _ => {}
        }
        self.one_of_enum(value, schema, path);
        if value.kind() == Kind::Map {
            self.map(value, schema, path);
        }
        true
    }

    fn type_of(&mut self, value: Ref<'_>, schema: &Constraints, path: &str) -> bool {
        if schema.types.is_empty() {
            return true;
        }
        let (name, own_format) = match value.kind() {
            Kind::Null if schema.nullable => return true,
            Kind::Null => ("null", ""),
            Kind::Bool => ("boolean", ""),
            Kind::Int => ("integer", "int64"),
            Kind::Float => ("number", "double"),
            Kind::String | Kind::Raw => ("string", ""),
            Kind::List => ("array", ""),
            Kind::Map => ("object", ""),
        };
        let has = |name: &str| schema.types.contains(&name);
        let whole = value.as_f64().is_some_and(|number| number.fract() == 0.0) && has("integer");
        let fits = has(name) || (name == "number" && whole) || (name == "integer" && has("number"));
        let text = matches!(value.kind(), Kind::String | Kind::List);
        let numeric = has("number") || has("integer");
        if fits || (text && !numeric && !schema.format.is_empty() && format::is_known(&schema.format)) {
            return true;
        }
        let known_format = format::is_known(&schema.format) || numeric && !schema.format.is_empty();
        let (wanted, got) = if !text && value.kind() != Kind::Null && known_format {
            (schema.format.clone(), own_format)
        } else {
            (schema.types.join(","), name)
        };
        self.wrong_type(path, &wanted, got);
        false
    }

    fn wrong_type(&mut self, path: &str, wanted: &str, got: &str) {
        let detail = format!("{path} in body must be of type {wanted}: {}", go_quote(got));
        self.push(FieldError {
            kind: FieldErrorKind::TypeInvalid,
            path: at(path),
            value: Some(go_quote(got)),
            detail,
        });
    }

    fn junctors(&mut self, value: Ref<'_>, schema: &Constraints, path: &str) {
        if !schema.any_of.is_empty() {
            let (valid, best) = self.alternatives(value, &schema.any_of, path);
            if valid == 0 {
                self.sentence(format!("\"{path}\" must validate at least one schema (anyOf)"));
                self.take_over(best);
            }
        }
        if !schema.one_of.is_empty() {
            let (valid, best) = self.alternatives(value, &schema.one_of, path);
            if valid != 1 {
                let found = if valid == 0 {
                    "Found none valid".to_owned()
                } else {
                    format!("Found {valid} valid alternatives")
                };
                self.sentence(format!(
                    "\"{path}\" must validate one and only one schema (oneOf). {found}"
                ));
                if valid == 0 {
                    self.take_over(best);
                }
            }
        }
        if !schema.all_of.is_empty() {
            let mut valid = 0;
            for own in &schema.all_of {
                let found = self.problems(value, own, path);
                valid += usize::from(found.0.is_empty());
                self.take_over(found);
            }
            if valid != schema.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                self.sentence(format!("\"{path}\" must validate all the schemas (allOf){none}"));
            }
        }
        if let Some(not) = &schema.not
            && self.problems(value, not, path).0.is_empty()
            && !self.over
        {
            self.sentence(format!("\"{path}\" must not validate the schema (not)"));
        }
    }

    fn string(&mut self, text: &str, schema: &Constraints, path: &str) {
        if !self.step(text.len()) {
            return;
        }
        let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        if let Some(max) = schema.max_length
            && length > max
        {
            self.push(FieldError::too_long(&at(path), usize::try_from(max).unwrap_or(0)));
        }
        if let Some(min) = schema.min_length
            && length < min
        {
            self.invalid(
                path,
                go_quote(text),
                format!("{path} in body should be at least {min} chars long"),
            );
        }
        if let Some(pattern) = &schema.pattern
            && !pattern.is_match(text)
        {
            self.invalid(
                path,
                go_quote(text),
                format!("{path} in body should match '{}'", pattern.text),
            );
        }
        if !schema.format.is_empty() && !format::is_valid(&schema.format, text) {
            let detail = format!(
                "{path} in body must be of type {}: {}",
                schema.format,
                go_quote(text)
            );
            let kind = FieldErrorKind::TypeInvalid;
            self.push(FieldError {
                kind,
                path: at(path),
                value: Some(go_quote(text)),
                detail,
            });
        }
    }

    fn number(&mut self, value: Ref<'_>, schema: &Constraints, path: &str) {
        let number = value.as_f64().unwrap_or(0.0);
        if schema.types.first() == Some(&"integer") && !is_integer(value, &schema.format) {
            let form = match schema.format.as_str() {
                "" => "(default format)".to_owned(),
                format => format!("with format {format}"),
            };
            self.sentence(format!("Checked value must be of type integer {form} in {path}"));
        }
        if let Some(factor) = schema.multiple_of
            && factor > 0.0
            && (number / factor).fract() != 0.0
        {
            self.invalid(
                path,
                value.to_json(),
                format!("{path} in body should be a multiple of {factor}"),
            );
        }
        if let Some(max) = schema.maximum {
            let words = if schema.exclusive_maximum {
                "less than"
            } else {
                "less than or equal to"
            };
            if number > max || (schema.exclusive_maximum && number >= max) {
                self.invalid(
                    path,
                    value.to_json(),
                    format!("{path} in body should be {words} {max}"),
                );
            }
        }
        if let Some(min) = schema.minimum {
            let words = if schema.exclusive_minimum {
                "greater than"
            } else {
                "greater than or equal to"
            };
            if number < min || (schema.exclusive_minimum && number <= min) {
                self.invalid(
                    path,
                    value.to_json(),
                    format!("{path} in body should be {words} {min}"),
                );
            }
        }
    }

    fn list(&mut self, value: Ref<'_>, schema: &Constraints, path: &str) {
        let count = i64::try_from(value.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_items
            && count < min
        {
            self.invalid(
                path,
                count.to_string(),
                format!("{path} in body should have at least {min} items"),
            );
        }
        if let Some(max) = schema.max_items
            && count > max
        {
            let max = usize::try_from(max).unwrap_or(0);
            self.push(FieldError::too_many(&at(path), value.len(), max));
        }
        if let Some(items) = &schema.items {
            for (index, item) in value.items().enumerate() {
                self.constraints(item, items, &format!("{path}[{index}]"));
            }
        }
    }

    fn map(&mut self, value: Ref<'_>, schema: &Constraints, path: &str) {
        let count = i64::try_from(value.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_properties
            && count < min
        {
            self.invalid(
                path,
                count.to_string(),
                format!("{path} in body should have at least {min} properties"),
            );
        }
        if let Some(max) = schema.max_properties
            && count > max
        {
            let max = usize::try_from(max).unwrap_or(0);
            self.push(FieldError::too_many(&at(path), value.len(), max));
        }
        for (name, own) in &schema.properties {
            if let Some(member) = value.get(name) {
                self.constraints(member, own, &joined(path, name));
            }
        }
        for name in &schema.required {
            if value.get(name).is_none() {
                self.push(FieldError::required(&at(&joined(path, name)), ""));
            }
        }
    }

    fn one_of_enum(&mut self, value: Ref<'_>, schema: &Constraints, path: &str) {
        if !self.step(16 * schema.enum_values.len()) {
            return;
        }
        if schema.enum_values.is_empty() || schema.enum_values.iter().any(|own| own.root() == value) {
            return;
        }
        if value.is_null() && schema.nullable {
            return;
        }
        let values: Vec<String> = schema
            .enum_values
            .iter()
            .map(|own| {
                own.root()
                    .as_str()
                    .map_or_else(|| own.root().to_json(), str::to_owned)
            })
            .collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        self.push(FieldError::not_supported(&at(path), shown(value), &values));
    }

    fn invalid(&mut self, path: &str, value: String, detail: String) {
        let kind = FieldErrorKind::Invalid;
        self.push(FieldError {
            kind,
            path: at(path),
            value: Some(value),
            detail,
        });
    }

    /// Upstream's composite messages stand at the root, with an empty value.
    fn sentence(&mut self, detail: String) {
        let (kind, path) = (FieldErrorKind::Invalid, FieldPath::root());
        self.push(FieldError {
            kind,
            path,
            value: Some("\"\"".to_owned()),
            detail,
        });
    }
}

/// A value as field errors print it.
pub(super) fn shown(value: Ref<'_>) -> Shown {
    Shown(value.as_str().map_or_else(|| value.to_json(), go_quote))
}

/// Reports whether a number is one of the integers of a format.
fn is_integer(value: Ref<'_>, format: &str) -> bool {
    let (low, high) = match format {
        "int32" => (i128::from(i32::MIN), i128::from(i32::MAX)),
        "uint32" => (0, i128::from(u32::MAX)),
        "uint64" => (0, i128::from(u64::MAX)),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
    };
    // Written without an exponent, as the rule reads it.
    let text = match value.as_i64() {
        Some(number) => number.to_string(),
        None => value.as_f64().unwrap_or(0.0).to_string(),
    };
    text.parse::<i128>()
        .is_ok_and(|number| (low..=high).contains(&number))
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn at(path: &str) -> FieldPath {
    if path.is_empty() {
        FieldPath::root()
    } else {
        FieldPath::new(path)
    }
}
