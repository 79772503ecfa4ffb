//! What Python prints and does where a template asks for it: str(), repr(), json.dumps() and
//! string methods.

use minijinja::value::{from_args, Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use std::fmt::Write;

/// Deeper values are refused: printing recurses.
const MAX_DEPTH: usize = 200;

fn failure(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text.into())
}

fn is_float(value: &Value) -> bool {
    value.kind() == ValueKind::Number && !value.is_integer()
}

/// repr(float): the shortest digits, with an exponent outside 1e-4 .. 1e16.
fn float_repr(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let shortest = format!("{number:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let mut text = format!("{number}");
    if !text.contains('.') {
        text.push_str(".0");
    }
    text
}

fn to_f64(value: &Value) -> f64 {
    f64::try_from(value.clone()).unwrap_or(f64::NAN)
}

fn string_repr(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if c != ' ' && (c.is_control() || c.is_whitespace()) => {
                let code = c as u32;
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

fn repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(failure("the value is nested too deeply to be printed"));
    }
    match value.kind() {
        ValueKind::String => string_repr(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(&item, depth + 1, out)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(&key, depth + 1, out)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        _ if is_float(value) => out.push_str(&float_repr(to_f64(value))),
        _ => {
            let _ = write!(out, "{value}");
        }
    }
    Ok(())
}

/// str(value)
pub fn to_str(value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => {
            let mut out = String::new();
            repr(value, 0, &mut out)?;
            Ok(out)
        }
    }
}

struct Json {
    ascii: bool,
    sort: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
}

impl Json {
    fn string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.ascii && (c as u32) > 0x7e) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn number(value: &Value) -> String {
        match to_f64(value) {
            _ if !is_float(value) => value.to_string(),
            number if number.is_nan() => "NaN".to_owned(),
            number if number.is_infinite() && number > 0.0 => "Infinity".to_owned(),
            number if number.is_infinite() => "-Infinity".to_owned(),
            number => float_repr(number),
        }
    }

    fn key(value: &Value) -> Result<String, Error> {
        match value.kind() {
            ValueKind::String => Ok(value.as_str().unwrap_or_default().to_owned()),
            ValueKind::Number => Ok(Self::number(value)),
            ValueKind::Bool => Ok(if value.is_true() { "true" } else { "false" }.to_owned()),
            ValueKind::None => Ok("null".to_owned()),
            kind => Err(failure(format!("tojson: a key of type {kind}"))),
        }
    }

    fn object(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut entries = Vec::new();
        for key in value.try_iter()? {
            entries.push((Self::key(&key)?, value.get_item(&key)?));
        }
        if self.sort {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        out.push('{');
        for (i, (key, item)) in entries.iter().enumerate() {
            out.push_str(if i > 0 { &self.item_separator } else { "" });
            self.new_line(depth + 1, out);
            self.string(key, out);
            out.push_str(&self.key_separator);
            self.value(item, depth + 1, out)?;
        }
        if !entries.is_empty() {
            self.new_line(depth, out);
        }
        out.push('}');
        Ok(())
    }

    fn array(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            out.push_str(if empty { "" } else { &self.item_separator });
            empty = false;
            self.new_line(depth + 1, out);
            self.value(&item, depth + 1, out)?;
        }
        if !empty {
            self.new_line(depth, out);
        }
        out.push(']');
        Ok(())
    }

    fn value(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(failure("tojson: the value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => out.push_str(&Self::number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => self.array(value, depth, out)?,
            ValueKind::Map => self.object(value, depth, out)?,
            kind => return Err(failure(format!("tojson: {kind} cannot be written as JSON"))),
        }
        Ok(())
    }
}

fn indent_of(value: &Value) -> Result<Option<String>, Error> {
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => Ok(None),
        ValueKind::String => Ok(value.as_str().map(str::to_owned)),
        _ => match i64::try_from(value.clone()) {
            Ok(width @ 0..=64) => Ok(Some(" ".repeat(width as usize))),
            Ok(width) if width < 0 => Ok(Some(String::new())),
            _ => Err(failure(
                "tojson: indent must be a whole number up to 64 or a string",
            )),
        },
    }
}

/// The filter as transformers defines it: json.dumps(x, ensure_ascii, indent, separators,
/// sort_keys), with ensure_ascii false by default and nothing escaped for HTML.
pub fn tojson(value: &Value, positional: Option<bool>, kwargs: Kwargs) -> Result<String, Error> {
    let ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    let sort: Option<bool> = kwargs.get("sort_keys")?;
    let indent = indent_of(&kwargs.get::<Option<Value>>("indent")?.unwrap_or_default())?;
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    kwargs.assert_all_used()?;
    let (item_separator, key_separator) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(failure("tojson: separators must be two strings")),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let json = Json {
        ascii: ascii.or(positional).unwrap_or(false),
        sort: sort.unwrap_or(false),
        indent,
        item_separator,
        key_separator,
    };
    let mut out = String::new();
    json.value(value, 0, &mut out)?;
    Ok(out)
}

/// What MarkupSafe escapes for HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// str.isspace: Unicode's white space and the four ASCII separators.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

pub fn strip<'a>(text: &'a str, set: Option<&str>, left: bool, right: bool) -> &'a str {
    let inside = |c: char| set.map_or_else(|| is_space(c), |set| set.contains(c));
    let text = if left {
        text.trim_start_matches(inside)
    } else {
        text
    };
    if right {
        text.trim_end_matches(inside)
    } else {
        text
    }
}

/// Where Python counts characters and the byte offset is `at`.
fn character_index(text: &str, at: Option<usize>) -> Value {
    Value::from(at.map_or(-1, |at| text[..at].chars().count() as i64))
}

fn partition(text: &str, separator: &str, at: Option<usize>, last: bool) -> Value {
    let parts = match at {
        Some(at) => [&text[..at], separator, &text[at + separator.len()..]],
        None if last => ["", "", text],
        None => [text, "", ""],
    };
    Value::from(parts.map(Value::from).to_vec())
}

/// Methods that minijinja-contrib lacks or answers differently from Python.
fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (set,): (Option<&str>,) = from_args(args)?;
            Value::from(strip(text, set, method != "rstrip", method != "lstrip"))
        }
        "find" | "rfind" | "index" | "rindex" => {
            let (what,): (&str,) = from_args(args)?;
            let at = if method.starts_with('r') {
                text.rfind(what)
            } else {
                text.find(what)
            };
            if at.is_none() && method.ends_with("index") {
                return Err(failure("substring not found"));
            }
            character_index(text, at)
        }
        "partition" | "rpartition" => {
            let (what,): (&str,) = from_args(args)?;
            if what.is_empty() {
                return Err(failure("empty separator"));
            }
            let last = method == "rpartition";
            let at = if last {
                text.rfind(what)
            } else {
                text.find(what)
            };
            partition(text, what, at, last)
        }
        "removeprefix" => {
            let (what,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(what).unwrap_or(text))
        }
        "removesuffix" => {
            let (what,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(what).unwrap_or(text))
        }
        "isspace" => {
            let () = from_args(args)?;
            Value::from(!text.is_empty() && text.chars().all(is_space))
        }
        "isdigit" | "isnumeric" | "isdecimal" => {
            let () = from_args(args)?;
            Value::from(!text.is_empty() && text.chars().all(char::is_numeric))
        }
        "isalpha" | "isalnum" => {
            let () = from_args(args)?;
            let fits = |c: char| c.is_alphabetic() || (method == "isalnum" && c.is_numeric());
            Value::from(!text.is_empty() && text.chars().all(fits))
        }
        "count" => {
            let (what,): (&str,) = from_args(args)?;
            Value::from(text.matches(what).count())
        }
        _ => return Ok(None),
    }))
}

pub fn call_method(
    state: &State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        if let Some(result) = string_method(text, method, args)? {
            return Ok(result);
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}
