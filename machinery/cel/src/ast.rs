//! The tree of an expression, as the parser makes it and the checker completes it.

/// Number of a node, unique in its expression.
pub(crate) type Id = usize;

#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub(crate) id: Id,
    pub(crate) kind: ExprKind,
}

#[derive(Debug, Clone)]
pub(crate) enum ExprKind {
    /// In the place of what could not be read.
    Unspecified,
    Literal(Literal),
    Ident(String),
    Select {
        operand: Box<Expr>,
        field: String,
        /// The select of `has`.
        test: bool,
    },
    Call(Box<CallExpr>),
    List {
        elements: Vec<Expr>,
        /// Positions of elements that are left out when they are empty optionals.
        optional: Vec<usize>,
    },
    Map(Vec<MapEntry>),
    Struct {
        name: String,
        fields: Vec<FieldEntry>,
    },
    Comprehension(Box<Comprehension>),
}

#[derive(Debug, Clone)]
pub(crate) struct CallExpr {
    pub(crate) function: String,
    pub(crate) target: Option<Expr>,
    pub(crate) args: Vec<Expr>,
}

#[derive(Debug, Clone)]
pub(crate) struct MapEntry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct FieldEntry {
    pub(crate) id: Id,
    pub(crate) name: String,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A loop over a list or map, which macros expand to.
#[derive(Debug, Clone)]
pub(crate) struct Comprehension {
    pub(crate) range: Expr,
    pub(crate) var: String,
    /// Second variable of a loop over indices and values; empty when there is none.
    pub(crate) var2: String,
    pub(crate) accu: String,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

/// Name of the accumulator of a loop; no source can contain it.
pub(crate) const ACCUMULATOR: &str = "@result";
/// The former name, which no variable of a loop may have.
pub(crate) const OLD_ACCUMULATOR: &str = "__result__";

impl Expr {
    pub(crate) fn as_ident(&self) -> Option<&str> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name),
            _ => None,
        }
    }

    pub(crate) fn as_literal(&self) -> Option<&Literal> {
        match &self.kind {
            ExprKind::Literal(literal) => Some(literal),
            _ => None,
        }
    }

    /// Calls a function on each child, in the order in which they are read.
    pub(crate) fn children<'e>(&'e self, mut each: impl FnMut(&'e Self)) {
        match &self.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => each(operand),
            ExprKind::Call(call) => call.target.iter().chain(&call.args).for_each(each),
            ExprKind::List { elements, .. } => elements.iter().for_each(each),
            ExprKind::Map(entries) => {
                for entry in entries {
                    each(&entry.key);
                    each(&entry.value);
                }
            }
            ExprKind::Struct { fields, .. } => fields.iter().for_each(|field| each(&field.value)),
            ExprKind::Comprehension(fold) => {
                [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
                    .into_iter()
                    .for_each(each);
            }
        }
    }

    /// Reports whether the expression selects a field of a variable, optionally or not.
    pub(crate) fn selects(&self, variable: &str, field: &str) -> bool {
        let is_variable = |own: &Self| own.as_ident() == Some(variable);
        let own = match &self.kind {
            ExprKind::Select {
                operand, field: own, ..
            } => own == field && is_variable(operand),
            ExprKind::Call(call) if call.function == "_?._" => {
                let name =
                    |own: &Self| matches!(own.as_literal(), Some(Literal::String(own)) if own == field);
                matches!(call.args.as_slice(), [operand, own] if is_variable(operand) && name(own))
            }
            _ => false,
        };
        let mut found = own;
        self.children(|child| found = found || child.selects(variable, field));
        found
    }

    /// A name with dots, when the expression is only that.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Ident(name) => Some(name.clone()),
            ExprKind::Select {
                operand,
                field,
                test: false,
            } => Some(format!("{}.{field}", operand.qualified_name()?)),
            _ => None,
        }
    }
}

impl CallExpr {
    /// Target and arguments, in the order in which they are evaluated.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &Expr> {
        self.target.iter().chain(&self.args)
    }
}
