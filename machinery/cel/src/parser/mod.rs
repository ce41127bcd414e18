//! From text to tree: a lexer, a parser by descent with bounds, and the macros that calls expand to.
//!
//! Grammar, limits and messages are cel-go's. After a syntax error that cannot be repaired by leaving one token out or
//! adding one, reading ends: one such error is reported, not those that follow from it.

mod expect;
mod grammar;
mod lexer;
mod macros;
mod primary;
#[cfg(test)]
mod tests;
mod unescape;

use crate::ast::{CallExpr, Expr, ExprKind, Id};
use crate::source::{Issues, Location, Source};
use lexer::Token;

/// Code points of an expression.
pub const MAX_EXPRESSION: usize = 100_000;
/// Expressions inside each other, and operators on one path.
const MAX_DEPTH: usize = 250;
/// Nodes on one path of the tree with macros expanded. Upstream has no such bound; it keeps what walks the tree within its stack.
const MAX_TREE: usize = 400;
/// Nodes of a tree, beside those for each character; macros may copy what they are called on, each time twice as much.
const MAX_NODES: usize = 20_000;
const NODES_OF_A_CHARACTER: usize = 8;

/// A tree, and where in the text each node is.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) expr: Expr,
    pub(crate) source: Source,
    /// Offsets by [`Id`].
    pub(crate) offsets: Vec<usize>,
}

impl Parsed {
    pub(crate) fn location(&self, id: Id) -> Location {
        let offset = self.offsets.get(id).copied().unwrap_or_default();
        self.source.location(offset)
    }
}

/// Extensions of the language.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Syntax {
    /// The macro `cel.bind`, which Kubernetes does not have.
    pub(crate) bind: bool,
}

/// Reads an expression.
pub(crate) fn parse(text: &str, syntax: Syntax) -> Result<Parsed, Issues> {
    let source = Source::new(text);
    let mut issues = Issues::new(source.clone());
    if source.chars.len() > MAX_EXPRESSION {
        let size = source.chars.len();
        let message =
            format!("expression code point size exceeds limit: size: {size}, limit {MAX_EXPRESSION}");
        issues.report(Location::NONE, message);
        return Err(issues);
    }
    let tokens = lexer::tokens(&source, &mut issues);
    let mut parser = Parser {
        source: &source,
        tokens,
        at: 0,
        offsets: vec![0],
        issues,
        depth: 0,
        open: 0,
        syntax,
    };
    let expr = parser.whole();
    let (mut issues, offsets) = (parser.issues, parser.offsets);
    match expr {
        Ok(expr) if issues.is_empty() && depth(&expr) > MAX_TREE => {
            issues.report(
                Location::NONE,
                format!("expression exceeds limit of {MAX_TREE} nested nodes"),
            );
            Err(issues)
        }
        Ok(expr) if issues.is_empty() => Ok(Parsed {
            expr,
            source,
            offsets,
        }),
        _ => {
            issues.sort();
            Err(issues)
        }
    }
}

/// Nodes on the longest path of a tree, counted without going down itself; counting ends above the bound.
pub(crate) fn depth(expr: &Expr) -> usize {
    let (mut pending, mut deepest) = (vec![(expr, 1)], 0);
    while let Some((expr, depth)) = pending.pop() {
        deepest = deepest.max(depth);
        if deepest > MAX_TREE {
            break;
        }
        expr.children(|child| pending.push((child, depth + 1)));
    }
    deepest
}

/// Reading cannot go on; the reason is reported.
#[derive(Debug, Clone, Copy)]
struct Stop;

type Read<T> = Result<T, Stop>;

/// A tree with the number of operators on its longest path.
struct Part {
    expr: Expr,
    height: usize,
}

struct Parser<'s> {
    source: &'s Source,
    tokens: Vec<Token>,
    at: usize,
    offsets: Vec<usize>,
    issues: Issues,
    /// Expressions around the place.
    depth: usize,
    /// Brackets and conditions that are not closed at the place.
    open: usize,
    syntax: Syntax,
}

impl Parser<'_> {
    fn id(&mut self, offset: usize) -> Id {
        self.offsets.push(offset);
        self.offsets.len() - 1
    }

    fn node(&mut self, offset: usize, kind: ExprKind) -> Expr {
        let id = self.id(offset);
        Expr { id, kind }
    }

    fn max_nodes(&self) -> usize {
        MAX_NODES + NODES_OF_A_CHARACTER * self.source.chars.len()
    }

    fn is_too_large(&self) -> bool {
        self.offsets.len() > self.max_nodes()
    }

    /// A problem of the expression as a whole.
    fn limit(&mut self, message: String) -> Stop {
        self.issues.report(Location::NONE, message);
        Stop
    }

    fn report(&mut self, offset: usize, message: String) {
        let location = self.source.location(offset);
        self.issues.report(location, message);
    }

    /// A node in the place of what was reported.
    fn wrong(&mut self, offset: usize, message: String) -> Expr {
        self.report(offset, message);
        self.node(offset, ExprKind::Unspecified)
    }

    /// An operator above other parts, if it is not one too many.
    fn above(&mut self, heights: usize, expr: Expr) -> Read<Part> {
        if heights >= MAX_DEPTH {
            return Err(self.limit("max recursion depth exceeded".to_owned()));
        }
        if self.is_too_large() {
            let limit = self.max_nodes();
            return Err(self.limit(format!("expression exceeds limit of {limit} nodes")));
        }
        Ok(Part {
            expr,
            height: heights + 1,
        })
    }

    /// A call of a function that is no member, or what its macro expands to.
    fn global_call(&mut self, offset: usize, function: &str, args: Vec<Expr>) -> Expr {
        self.call(offset, function, None, args)
    }

    fn call(&mut self, offset: usize, function: &str, target: Option<Expr>, args: Vec<Expr>) -> Expr {
        let id = self.id(offset);
        let call = CallExpr {
            function: function.to_owned(),
            target,
            args,
        };
        match macros::expand(self, id, call) {
            Ok(expr) => expr,
            Err(call) => Expr {
                id,
                kind: ExprKind::Call(Box::new(call)),
            },
        }
    }
}
