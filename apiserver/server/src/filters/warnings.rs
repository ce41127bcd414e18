//! `Warning` headers with the request's warnings.

use super::filter::{Filter, Next};
use crate::exchange::{RequestExchange, Response};
use futures::future::BoxFuture;
use http::HeaderValue;

pub(crate) struct Warnings;

impl Filter for Warnings {
    fn call(&self, exchange: RequestExchange, next: Next) -> BoxFuture<'static, Response> {
        let warnings = exchange.context.warnings.clone();
        Box::pin(async move {
            let mut response = next.run(exchange).await;
            for text in warnings.take() {
                if let Ok(value) = HeaderValue::from_bytes(header(&text).as_bytes()) {
                    response.headers_mut().append(http::header::WARNING, value);
                }
            }
            response
        })
    }
}

/// `299 - "text"`, quoted, without control characters.
fn header(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 8);
    quoted.push_str("299 - \"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    #[test]
    fn texts_are_quoted() {
        assert_eq!(super::header("a \"b\"\n\\c"), r#"299 - "a \"b\" \\c""#);
    }
}
