//! Rules of a structural schema: `x-kubernetes-validations` at any depth, compiled once and run over objects.
//!
//! Each rule sees the value it stands at as `self`, and what that value was as `oldSelf` where the two are known to be
//! the same: fields of objects, and elements of lists with keys. All rules of an object share one budget.

mod field_path;
mod problems;
mod run;

use crate::declared::Declared;
use crate::env::Env;
use crate::eval::Interrupt;
use crate::program::{Compiled, Program};
use crate::types::Type;
use crate::value::Data;
use machinery_meta::{FieldError, FieldPath};
use run::Run;
pub use run::Verdict;
use std::sync::Arc;

/// Schemas inside each other.
const MAX_DEPTH: usize = 64;
const VALIDATIONS: &str = "x-kubernetes-validations";

/// The rules of a schema.
#[derive(Debug)]
pub struct Rules {
    root: Node,
    greatest_work: u64,
}

/// Rules of a value and of what is in it.
#[derive(Debug, Default)]
struct Node {
    /// `type` of the schema, which problems show.
    ty: String,
    declared: Option<Declared>,
    rules: Vec<Rule>,
    fields: Vec<(String, Node)>,
    /// Elements of a list.
    items: Option<Box<Node>>,
    /// Values of a map.
    values: Option<Box<Node>>,
    all_of: Vec<Node>,
    /// Keys of a list whose elements can be distinguished.
    keys: Vec<String>,
    /// The map is replaced as a whole, so that its members have no past.
    atomic: bool,
    /// Elements or entries, at most, as the schema says.
    max_children: Option<u64>,
}

/// One rule.
#[derive(Debug)]
struct Rule {
    text: String,
    message: String,
    reason: String,
    /// The field that is wrong, below the value.
    field: String,
    optional_old_self: bool,
    program: Result<Program, String>,
    message_expression: Option<Result<Program, String>>,
    /// Greatest costs of the rule and of its message.
    costs: (u64, u64),
    /// The same with the work that costs do not count.
    works: (u64, u64),
    /// The value at the rule is at most this often in a request.
    cardinality: u64,
}

impl Rules {
    /// Compiles the rules of the schema of whole objects; none when it has none.
    pub fn compile(schema: &serde_json::Value) -> Option<Self> {
        let schema = Data::from(schema);
        Node::compile(schema, schema, true, 0).map(|root| Self {
            greatest_work: problems::greatest_work(&root),
            root,
        })
    }

    /// Greatest work of all rules of an object together, as estimated from the schema: their cost, and the steps that upstream's
    /// costs leave out. A check ends at a tenth of the greatest cost that a definition may have.
    pub fn greatest_work(&self) -> u64 {
        self.greatest_work
    }

    /// Problems of the rules themselves, with which a definition is refused; `path` leads to the schema.
    pub fn problems(&self, path: &FieldPath) -> Vec<FieldError> {
        problems::of(&self.root, path)
    }

    /// Runs the rules over an object, with what it was before an update, until an end is wanted.
    pub fn check(
        &self,
        object: Data<'_>,
        old: Option<Data<'_>>,
        interrupt: Option<Arc<dyn Interrupt>>,
    ) -> Verdict {
        Run::new(interrupt).object(&self.root, object, old)
    }
}

fn text(schema: Data<'_>, name: &str) -> String {
    let own = schema.member(name).and_then(Data::as_str);
    own.unwrap_or_default().to_owned()
}

impl Node {
    /// `rules` is the schema that has the rules: the same, or a part of its `allOf`.
    fn compile(rules: Data<'_>, schema: Data<'_>, root: bool, depth: usize) -> Option<Self> {
        if depth > MAX_DEPTH {
            return has_rules(rules).then(Self::too_deep);
        }
        let below = |name: &str| {
            let (rules, schema) = (rules.member(name)?, schema.member(name)?);
            let both = rules.is_map() && schema.is_map();
            both.then(|| Self::compile(rules, schema, false, depth + 1))?
                .map(Box::new)
        };
        let mut node = Self {
            items: below("items"),
            values: below("additionalProperties"),
            ..Self::default()
        };
        if let (Some(rules), Some(schema)) = (rules.member("properties"), schema.member("properties")) {
            for name in rules.names() {
                let part = rules.member(name).zip(schema.member(name));
                let field = part.and_then(|(rules, own)| Self::compile(rules, own, false, depth + 1));
                node.fields.extend(field.map(|own| (name.to_owned(), own)));
            }
        }
        let parts = rules.member("allOf");
        for at in 0..parts.map_or(0, Data::len) {
            let part = parts.and_then(|own| own.item(at));
            let own = part.and_then(|part| Self::compile(part, schema, root, depth + 1));
            node.all_of.extend(own);
        }
        node.own_rules(rules, schema, root);
        node.describe(schema);
        let empty = node.rules.is_empty() && node.fields.is_empty() && node.all_of.is_empty();
        (!empty || node.items.is_some() || node.values.is_some()).then_some(node)
    }

    /// Stands for rules that are not read: a definition with them is refused.
    fn too_deep() -> Self {
        let problem = format!("rules are not supported below {MAX_DEPTH} schemas inside each other");
        Self {
            rules: vec![Rule::refused(problem)],
            ..Self::default()
        }
    }

    fn describe(&mut self, schema: Data<'_>) {
        self.ty = text(schema, "type");
        self.atomic = text(schema, "x-kubernetes-map-type") == "atomic";
        let limit = if self.ty == "array" {
            "maxItems"
        } else {
            "maxProperties"
        };
        let limit = schema.member(limit).and_then(Data::as_i64);
        self.max_children = limit.map(|own| u64::try_from(own).unwrap_or_default());
        let keys = schema.member("x-kubernetes-list-map-keys");
        if let Some(keys) = keys.filter(|_| text(schema, "x-kubernetes-list-type") == "map") {
            let keys = (0..keys.len()).filter_map(|at| keys.item(at)?.as_str());
            self.keys = keys.map(str::to_owned).collect();
        }
    }

    fn own_rules(&mut self, rules: Data<'_>, schema: Data<'_>, root: bool) {
        let Some(list) = rules.member(VALIDATIONS).filter(|own| own.len() > 0) else {
            return;
        };
        self.declared = Declared::from_schema(schema, root);
        let declared = self.declared.as_ref();
        let compiled = (0..list.len()).filter_map(|at| Some(Rule::compile(list.item(at)?, declared, schema)));
        self.rules = compiled.collect();
    }
}

/// Reports whether any part of a schema has rules; walked without recursion.
fn has_rules(schema: Data<'_>) -> bool {
    let mut left = vec![schema];
    while let Some(own) = left.pop() {
        if own.is_list() {
            left.extend((0..own.len()).filter_map(|at| own.item(at)));
        }
        for name in own.names() {
            match own.member(name) {
                Some(rules) if name == VALIDATIONS && rules.len() > 0 => return true,
                member => left.extend(member.filter(|member| member.is_map() || member.is_list())),
            }
        }
    }
    false
}

impl Rule {
    fn refused(problem: String) -> Self {
        Self {
            text: VALIDATIONS.to_owned(),
            message: String::new(),
            reason: String::new(),
            field: String::new(),
            optional_old_self: false,
            program: Err(problem),
            message_expression: None,
            costs: (0, 0),
            works: (0, 0),
            cardinality: 1,
        }
    }

    fn compile(rule: Data<'_>, declared: Option<&Declared>, schema: Data<'_>) -> Self {
        let optional = rule.member("optionalOldSelf").and_then(Data::as_bool) == Some(true);
        let message = text(rule, "message");
        let rule_text = text(rule, "rule");
        let env = declared.and_then(|own| env(own, optional));
        let compiled = match &env {
            Some(env) => compiled_expression(
                env,
                &rule_text,
                &Type::Bool,
                "cel expression must evaluate to a bool",
            ),
            None => Err("failed to convert to declType for CEL validation rules".to_owned()),
        };
        let message_text = text(rule, "messageExpression");
        let expression = env.filter(|_| !message_text.is_empty()).map(|env| {
            let problem = "messageExpression must evaluate to a string";
            compiled_expression(&env, &message_text, &Type::String, problem).map_err(|problem| {
                problem.replace("compilation failed", "messageExpression compilation failed")
            })
        });
        let greatest = |own: &Compiled| declared.map_or(0, |declared| own.estimate(declared).max);
        let work = |own: &Compiled| declared.map_or(0, |declared| own.greatest_work(declared));
        let shown = expression.as_ref().and_then(|own| own.as_ref().ok());
        let costs = (compiled.as_ref().map_or(0, greatest), shown.map_or(0, greatest));
        let works = (compiled.as_ref().map_or(0, work), shown.map_or(0, work));
        let program = |own: Compiled| {
            let program = own.program();
            program.map_err(|problem| format!("program instantiation failed: {problem}"))
        };
        Self {
            program: compiled.and_then(program),
            message_expression: expression.map(|own| own.and_then(program)),
            costs,
            works,
            cardinality: declared.map_or(1, Declared::max_cardinality),
            reason: text(rule, "reason"),
            field: field_path::normal(&text(rule, "fieldPath"), schema).unwrap_or_default(),
            optional_old_self: optional,
            text: rule_text.trim().to_owned(),
            message: message.trim().to_owned(),
        }
    }

    /// The rule as problems name it.
    fn shown(&self) -> &str {
        if self.message.is_empty() {
            &self.text
        } else {
            &self.message
        }
    }
}

/// The variables of rules at a value.
fn env(declared: &Declared, optional: bool) -> Option<Env> {
    let ty = declared.ty()?;
    let old = if optional {
        Type::optional(ty.clone())
    } else {
        ty.clone()
    };
    let env = Env::new().variable("self", ty).variable("oldSelf", old);
    Some(env.types(Arc::new(declared.clone())))
}

fn compiled_expression(env: &Env, text: &str, ty: &Type, problem: &str) -> Result<Compiled, String> {
    let own = env
        .compile(text)
        .map_err(|issues| format!("compilation failed: {issues}"))?;
    if own.ty() == ty {
        Ok(own)
    } else {
        Err(problem.to_owned())
    }
}
