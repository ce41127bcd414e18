//! Rules run over an object.

use super::{Node, Rule};
use crate::eval::{
    Activation, BYTES_OF_A_STEP, Interrupt, Limits, MAX_WORK_OF_OBJECT, Meter, RUNTIME_BUDGET,
};
use crate::value::{Data, ErrorKind, EvalError, Evaluated, Value};
use machinery_meta::walked_path::WalkedPath;
use machinery_meta::{FieldError, FieldErrorKind, FieldPath};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of all problems and warnings of an object; no more rules run beyond them.
const MAX_NOTED: usize = 1 << 20;
/// Bytes of a message that an expression made.
const MAX_MESSAGE: usize = 5 * 1024;
/// Values, fields of the schema and rules between two looks at whether an end is wanted.
const STEPS_OF_A_LOOK: u64 = 64;

/// Outcome of the rules of an object.
#[derive(Debug, Default)]
pub struct Verdict {
    pub problems: Vec<FieldError>,
    /// Problems of values that an update leaves as they were.
    pub warnings: Vec<String>,
    /// Cost of all rules.
    pub cost: u64,
    /// Steps that costs do not count: of the rules, of the walk to the values, and of the paths in problems.
    pub work: u64,
}

/// A value and its past, which are compared once: all elements of a list without keys look up the list.
#[derive(Clone)]
struct Pair<'o> {
    now: Data<'o>,
    before: Data<'o>,
    is_same: Rc<OnceCell<bool>>,
}

impl<'o> Pair<'o> {
    fn new(now: Data<'o>, before: Data<'o>) -> Self {
        let is_same = Rc::default();
        Self { now, before, is_same }
    }

    fn is_same(&self) -> bool {
        *self.is_same.get_or_init(|| {
            let mut meter = Meter::new(Limits::default());
            let same = self.now.value().equals(&self.before.value(), &mut meter);
            same.unwrap_or(false)
        })
    }
}

/// A value, with its past where that is known, and the nearest of what it is in.
#[derive(Clone, Default)]
struct Past<'o> {
    own: Option<Pair<'o>>,
    parent: Option<Pair<'o>>,
}

impl<'o> Past<'o> {
    fn child(&self, name: Option<&str>, now: Data<'o>, before: Option<Data<'o>>) -> Self {
        if self.own.is_none() {
            return self.clone();
        }
        // The type of the whole object says nothing of its members.
        if self.parent.is_none() && matches!(name, Some("apiVersion" | "kind")) {
            return Self::default();
        }
        Self {
            own: before.map(|before| Pair::new(now, before)),
            parent: self.own.clone(),
        }
    }

    /// Reports whether an update leaves the value as it was.
    fn is_unchanged(&self) -> bool {
        let known = self.own.as_ref().or(self.parent.as_ref());
        known.is_some_and(Pair::is_same)
    }
}

/// Values of a rule's variables.
struct Variables<'a> {
    own: Evaluated<'a>,
    old: Option<Evaluated<'a>>,
}

impl Activation for Variables<'_> {
    fn resolve<'s>(&'s self, name: &str) -> Option<Evaluated<'s>> {
        match name {
            "self" => Some(self.own.clone()),
            "oldSelf" => self.old.clone(),
            _ => None,
        }
    }
}

/// The budget is used up: no more rules run.
struct Stop;

pub(super) struct Run {
    verdict: Verdict,
    /// Bytes of problems and warnings.
    noted: usize,
    /// Of each evaluation.
    limits: Limits,
    /// Steps until the next look at whether an end is wanted: most rules have no loop that would look, and most values no rule.
    before_look: u64,
}

impl Run {
    pub(super) fn new(interrupt: Option<Arc<dyn Interrupt>>) -> Self {
        let limits = Limits {
            interrupt,
            ..Limits::default()
        };
        Self {
            verdict: Verdict::default(),
            noted: 0,
            limits,
            before_look: STEPS_OF_A_LOOK,
        }
    }

    pub(super) fn object(mut self, node: &Node, object: Data<'_>, old: Option<Data<'_>>) -> Verdict {
        let past = Past {
            own: old.map(|old| Pair::new(object, old)),
            parent: None,
        };
        let _ = self.value(node, &WalkedPath::ROOT, object, old, &past);
        self.verdict
    }

    fn value(
        &mut self,
        node: &Node,
        path: &WalkedPath<'_>,
        value: Data<'_>,
        old: Option<Data<'_>>,
        past: &Past<'_>,
    ) -> Result<(), Stop> {
        self.walk(node, path, 1)?;
        if value.is_null() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        self.rules(node, path, value, old, past)?;
        for part in &node.all_of {
            let past = Past {
                own: None,
                parent: past.parent.clone(),
            };
            self.value(part, path, value, old, &past)?;
        }
        if value.is_list() {
            return self.elements(node, path, value, old, past);
        }
        self.members(node, path, value, old, past)
    }

    fn members(
        &mut self,
        node: &Node,
        path: &WalkedPath<'_>,
        value: Data<'_>,
        old: Option<Data<'_>>,
        past: &Past<'_>,
    ) -> Result<(), Stop> {
        let before = |name: &str| old.filter(|_| !node.atomic).and_then(|old| old.member(name));
        if let Some(values) = &node.values {
            for name in value.names() {
                let Some(own) = value.member(name) else { continue };
                let past = past.child(Some(name), own, before(name));
                self.value(values, &path.key(name), own, before(name), &past)?;
            }
        }
        self.walk(node, path, node.fields.len())?;
        for (name, field) in &node.fields {
            let Some(own) = value.member(name) else { continue };
            let past = past.child(Some(name), own, before(name));
            self.value(field, &path.child(name), own, before(name), &past)?;
        }
        Ok(())
    }

    fn elements(
        &mut self,
        node: &Node,
        path: &WalkedPath<'_>,
        value: Data<'_>,
        old: Option<Data<'_>>,
        past: &Past<'_>,
    ) -> Result<(), Stop> {
        let Some(items) = &node.items else { return Ok(()) };
        let mut known = HashMap::new();
        let before = old.filter(|_| !node.keys.is_empty()).into_iter();
        for old in before.flat_map(|old| (0..old.len()).filter_map(move |at| old.item(at))) {
            if let Some(key) = composite(old, &node.keys) {
                known.entry(key).or_insert(old);
            }
        }
        for at in 0..value.len() {
            let Some(own) = value.item(at) else { continue };
            let before = composite(own, &node.keys).and_then(|key| known.get(&key).copied());
            self.value(
                items,
                &path.index(at),
                own,
                before,
                &past.child(None, own, before),
            )?;
        }
        Ok(())
    }

    fn rules(
        &mut self,
        node: &Node,
        path: &WalkedPath<'_>,
        value: Data<'_>,
        old: Option<Data<'_>>,
        past: &Past<'_>,
    ) -> Result<(), Stop> {
        let Some(declared) = &node.declared else {
            return Ok(());
        };
        for rule in &node.rules {
            let Ok(program) = &rule.program else {
                let problem = rule
                    .program
                    .as_ref()
                    .err()
                    .map(String::as_str)
                    .unwrap_or_default();
                self.invalid(node, path, &format!("rule compile error: {problem}"))?;
                continue;
            };
            let uses_old = program.uses("oldSelf");
            if uses_old && old.is_none() && !rule.optional_old_self {
                continue;
            }
            let before = old.map(|old| declared.value(old));
            let before = match (rule.optional_old_self, before) {
                (true, None) => Some(Ok(Value::Optional(None))),
                (true, Some(own)) => Some(own.map(|own| Value::Optional(Some(Arc::new(own))))),
                (false, own) => own,
            };
            let variables = Variables {
                own: declared.value(value),
                old: before,
            };
            self.in_time(node, rule, path)?;
            let done = program.evaluate(&variables, &self.limits);
            self.work(done.work);
            self.spend(node, path, done.cost)?;
            match done.value {
                Ok(Value::Bool(true)) => {}
                Ok(_) => {
                    let detail = self.detail(node, rule, path, &variables)?;
                    let is_warning = !uses_old && past.is_unchanged();
                    // Clients are shown far fewer warnings than there is room for.
                    if is_warning && self.noted > MAX_NOTED {
                        continue;
                    }
                    let problem = self.failed(node, rule, path, value, detail);
                    if is_warning {
                        self.warn(&problem);
                    } else {
                        self.note(node, path, problem)?;
                    }
                }
                Err(error) => self.error(node, rule, path, &error)?,
            }
        }
        Ok(())
    }

    fn invalid(&mut self, node: &Node, path: &WalkedPath<'_>, detail: &str) -> Result<(), Stop> {
        let written = self.written(path);
        self.note(
            node,
            path,
            FieldError::invalid(&written, node.ty.as_str(), detail),
        )
    }

    /// Notes a problem as long as there is room for it.
    fn note(&mut self, node: &Node, path: &WalkedPath<'_>, problem: FieldError) -> Result<(), Stop> {
        if self.noted > MAX_NOTED {
            let detail = "too many problems, no further validation rules will be run";
            let last = FieldError::invalid(&self.written(path), node.ty.as_str(), detail);
            self.verdict.problems.push(last);
            return Err(Stop);
        }
        self.noted += problem.to_string().len();
        self.verdict.problems.push(problem);
        Ok(())
    }

    fn warn(&mut self, problem: &FieldError) {
        let warning = problem.to_string();
        self.noted += warning.len();
        self.verdict.warnings.push(warning);
    }

    /// Writes a path for a problem; its bytes count as work.
    fn written(&mut self, path: &WalkedPath<'_>) -> FieldPath {
        let written = path.to_path();
        self.work(written.as_str().len() as u64 / BYTES_OF_A_STEP);
        written
    }

    fn work(&mut self, steps: u64) {
        self.verdict.work = self.verdict.work.saturating_add(steps);
    }

    fn spend(&mut self, node: &Node, path: &WalkedPath<'_>, cost: u64) -> Result<(), Stop> {
        self.verdict.cost = self.verdict.cost.saturating_add(cost);
        if self.verdict.cost > RUNTIME_BUDGET || self.verdict.work > MAX_WORK_OF_OBJECT {
            let detail = "validation failed due to running out of cost budget, no further validation rules will be run";
            self.invalid(node, path, detail)?;
            return Err(Stop);
        }
        Ok(())
    }

    /// Counts steps of the walk, which cost nothing: values without rules take time, too.
    fn walk(&mut self, node: &Node, path: &WalkedPath<'_>, steps: usize) -> Result<(), Stop> {
        self.work(steps as u64);
        if self.is_end_wanted(steps as u64) {
            let detail = format!(
                "{}, no further validation rules will be run",
                EvalError::interrupted()
            );
            self.invalid(node, path, &detail)?;
            return Err(Stop);
        }
        self.spend(node, path, 0)
    }

    /// Ends the run where an end is wanted, in upstream's words: there each further rule says so.
    fn in_time(&mut self, node: &Node, rule: &Rule, path: &WalkedPath<'_>) -> Result<(), Stop> {
        match self.is_end_wanted(1) {
            true => self.error(node, rule, path, &EvalError::interrupted()),
            false => Ok(()),
        }
    }

    /// Looks at times, since the look may read a clock.
    fn is_end_wanted(&mut self, steps: u64) -> bool {
        self.before_look = self.before_look.saturating_sub(steps);
        if self.before_look > 0 {
            return false;
        }
        self.before_look = STEPS_OF_A_LOOK;
        let interrupt = self.limits.interrupt.as_ref();
        interrupt.is_some_and(|own| own.is_wanted())
    }

    fn error(
        &mut self,
        node: &Node,
        rule: &Rule,
        path: &WalkedPath<'_>,
        error: &EvalError,
    ) -> Result<(), Stop> {
        let (text, shown) = (error.to_string(), rule.shown());
        if error.kind == ErrorKind::Interrupted {
            self.invalid(node, path, &format!("{text} evaluating rule: {shown}"))?;
            return Err(Stop);
        }
        if error.kind != ErrorKind::Failed {
            let problem = "no further validation rules will be run due to call cost exceeds limit for rule";
            self.invalid(node, path, &format!("'{text}': {problem}: {shown}"))?;
            return Err(Stop);
        }
        let detail = if text.starts_with("no such overload") {
            let problem =
                "call arguments did not match a supported operator, function or macro signature for rule";
            format!("'{text}': {problem}: {shown}")
        } else {
            format!("{text} evaluating rule: {shown}")
        };
        self.invalid(node, path, &detail)
    }

    /// Returns the words for a value that breaks a rule: the rule's message, or the rule itself.
    fn detail(
        &mut self,
        node: &Node,
        rule: &Rule,
        path: &WalkedPath<'_>,
        variables: &Variables<'_>,
    ) -> Result<String, Stop> {
        let own = self.message(node, rule, path, variables)?;
        Ok(own.unwrap_or_else(|| match rule.message.as_str() {
            "" => format!("failed rule: {}", rule.text),
            message => message.to_owned(),
        }))
    }

    /// The problem of a rule that does not hold.
    fn failed(
        &mut self,
        node: &Node,
        rule: &Rule,
        path: &WalkedPath<'_>,
        value: Data<'_>,
        detail: String,
    ) -> FieldError {
        let path = match rule.field.as_str() {
            "" => self.written(path),
            field => self.written(&path.child(field)),
        };
        let is_whole = matches!(node.ty.as_str(), "object" | "array");
        let shown = (!is_whole).then(|| shown(value));
        match rule.reason.as_str() {
            "FieldValueForbidden" => FieldError::forbidden(&path, detail),
            "FieldValueRequired" => FieldError::required(&path, detail),
            "FieldValueDuplicate" => FieldError {
                kind: FieldErrorKind::Duplicate,
                path,
                value: shown,
                detail: String::new(),
            },
            _ => FieldError {
                kind: FieldErrorKind::Invalid,
                path,
                value: shown,
                detail,
            },
        }
    }

    /// The message that an expression makes; none when it makes none that can be shown.
    fn message(
        &mut self,
        node: &Node,
        rule: &Rule,
        path: &WalkedPath<'_>,
        variables: &Variables<'_>,
    ) -> Result<Option<String>, Stop> {
        let Some(Ok(program)) = &rule.message_expression else {
            return Ok(None);
        };
        let done = program.evaluate(variables, &self.limits);
        self.work(done.work);
        self.verdict.cost = self.verdict.cost.saturating_add(done.cost);
        if self.verdict.cost > RUNTIME_BUDGET {
            let detail = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
            self.invalid(node, path, detail)?;
            return Err(Stop);
        }
        let Ok(Value::String(own)) = done.value else {
            return Ok(None);
        };
        let own = own.as_str().trim();
        let usable = !own.is_empty() && own.len() <= MAX_MESSAGE && !own.contains(['\n', '\r']);
        Ok(usable.then(|| own.to_owned()))
    }
}

/// A value as problems show it.
fn shown(value: Data<'_>) -> String {
    match value {
        Data::Tree(own) => own.to_json(),
        Data::Json(own) | Data::Untyped(own) => own.to_string(),
    }
}

/// The keys of an element, when it has all of them.
fn composite(element: Data<'_>, keys: &[String]) -> Option<String> {
    if keys.is_empty() {
        return None;
    }
    let mut out = String::new();
    for key in keys {
        let own = element.member(key)?;
        if own.is_list() || own.is_map() {
            return None;
        }
        out += &shown(own);
        out.push('\0');
    }
    Some(out)
}
