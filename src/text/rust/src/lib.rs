//! The C interface of the tokenizer, the chat template and name patterns; its declarations are in
//! `src/text/rust_interface.h`.
//!
//! Every function that can fail returns 0 or 1 and, with 1, fills `error`; no panic crosses the
//! border. Strings go in as pointer and size; a `Buffer` that comes out is released with
//! `wgrad_text_buffer_free`.

mod guard;
mod python;
mod template;
mod tokenizer;

use regex::Regex;
use std::ptr;
use std::slice;
use template::Template;
use tokenizer::Tokenizer;

/// Bytes, ids or offsets that Rust owns until they are handed back.
#[repr(C)]
pub struct Buffer<T> {
    data: *mut T,
    size: usize,
}

impl<T> Buffer<T> {
    fn new(values: Vec<T>) -> Buffer<T> {
        let values = values.into_boxed_slice();
        let size = values.len();
        Buffer {
            data: Box::into_raw(values).cast(),
            size,
        }
    }

    unsafe fn release(self) {
        if !self.data.is_null() {
            drop(Box::from_raw(ptr::slice_from_raw_parts_mut(
                self.data, self.size,
            )));
        }
    }
}

impl From<String> for Buffer<u8> {
    fn from(text: String) -> Buffer<u8> {
        Buffer::new(text.into_bytes())
    }
}

unsafe fn input<'a, T>(data: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        &[]
    } else {
        slice::from_raw_parts(data, size)
    }
}

unsafe fn text<'a>(data: *const u8, size: usize) -> Result<&'a str, String> {
    std::str::from_utf8(input(data, size))
        .map_err(|e| format!("not UTF-8 at byte {}", e.valid_up_to()))
}

/// Runs `work`, hands its value to `keep`, or its error to `error`.
unsafe fn finish<T>(
    error: *mut Buffer<u8>,
    work: impl FnOnce() -> Result<T, String>,
    keep: impl FnOnce(T),
) -> i32 {
    match guard::catch(work) {
        Ok(value) => {
            keep(value);
            0
        }
        Err(text) => {
            error.write(text.into());
            1
        }
    }
}

/// # Safety
/// `buffer` came from this library and is not used again.
#[no_mangle]
pub unsafe extern "C" fn wgrad_text_buffer_free(buffer: Buffer<u8>) {
    buffer.release();
}

/// # Safety
/// `buffer` came from this library and is not used again.
#[no_mangle]
pub unsafe extern "C" fn wgrad_text_ids_free(buffer: Buffer<u32>) {
    buffer.release();
}

/// # Safety
/// `buffer` came from this library and is not used again.
#[no_mangle]
pub unsafe extern "C" fn wgrad_text_offsets_free(buffer: Buffer<usize>) {
    buffer.release();
}

/// # Safety
/// `data` holds `size` bytes; `out` and `error` may be written.
#[no_mangle]
pub unsafe extern "C" fn wgrad_tokenizer_new(
    data: *const u8,
    size: usize,
    out: *mut *mut Tokenizer,
    error: *mut Buffer<u8>,
) -> i32 {
    let work = || Tokenizer::from_json(input(data, size));
    finish(error, work, |tokenizer| {
        out.write(Box::into_raw(Box::new(tokenizer)))
    })
}

/// # Safety
/// `tokenizer` came from `wgrad_tokenizer_new` and is not used again.
#[no_mangle]
pub unsafe extern "C" fn wgrad_tokenizer_free(tokenizer: *mut Tokenizer) {
    drop(Box::from_raw(tokenizer));
}

/// `offsets` gets a start and an end for each id: bytes of the text.
///
/// # Safety
/// `tokenizer` is alive, `data` holds `size` bytes, the outputs may be written.
#[no_mangle]
pub unsafe extern "C" fn wgrad_tokenizer_encode(
    tokenizer: *const Tokenizer,
    data: *const u8,
    size: usize,
    add_special_tokens: bool,
    ids: *mut Buffer<u32>,
    offsets: *mut Buffer<usize>,
    error: *mut Buffer<u8>,
) -> i32 {
    let work = || (*tokenizer).encode(text(data, size)?, add_special_tokens);
    finish(error, work, |(found, places)| {
        ids.write(Buffer::new(found));
        let flat = places
            .into_iter()
            .flat_map(|(start, end)| [start, end])
            .collect();
        offsets.write(Buffer::new(flat));
    })
}

/// # Safety
/// `tokenizer` is alive, `ids` holds `count` values, the outputs may be written.
#[no_mangle]
pub unsafe extern "C" fn wgrad_tokenizer_decode(
    tokenizer: *const Tokenizer,
    ids: *const u32,
    count: usize,
    skip_special_tokens: bool,
    out: *mut Buffer<u8>,
    error: *mut Buffer<u8>,
) -> i32 {
    let work = || (*tokenizer).decode(input(ids, count), skip_special_tokens);
    finish(error, work, |decoded| out.write(decoded.into()))
}

/// Returns 0 when there is such a token.
///
/// # Safety
/// `tokenizer` is alive; `out` may be written.
#[no_mangle]
pub unsafe extern "C" fn wgrad_tokenizer_token(
    tokenizer: *const Tokenizer,
    id: u32,
    out: *mut Buffer<u8>,
) -> i32 {
    match guard::catch(|| Ok((*tokenizer).token(id))) {
        Ok(Some(token)) => {
            out.write(token.into());
            0
        }
        _ => 1,
    }
}

/// Returns 0 when there is such a token.
///
/// # Safety
/// `tokenizer` is alive, `data` holds `size` bytes, `out` may be written.
#[no_mangle]
pub unsafe extern "C" fn wgrad_tokenizer_id(
    tokenizer: *const Tokenizer,
    data: *const u8,
    size: usize,
    out: *mut u32,
) -> i32 {
    match guard::catch(|| Ok((*tokenizer).id(text(data, size)?))) {
        Ok(Some(id)) => {
            out.write(id);
            0
        }
        _ => 1,
    }
}

/// # Safety
/// `tokenizer` is alive.
#[no_mangle]
pub unsafe extern "C" fn wgrad_tokenizer_vocabulary_size(tokenizer: *const Tokenizer) -> usize {
    guard::catch(|| Ok((*tokenizer).vocabulary_size())).unwrap_or(0)
}

/// The added tokens as JSON: [{"id", "content", "special"}].
///
/// # Safety
/// `tokenizer` is alive; the outputs may be written.
#[no_mangle]
pub unsafe extern "C" fn wgrad_tokenizer_added_tokens(
    tokenizer: *const Tokenizer,
    out: *mut Buffer<u8>,
    error: *mut Buffer<u8>,
) -> i32 {
    finish(
        error,
        || Ok((*tokenizer).added_tokens()),
        |list| out.write(list.into()),
    )
}

/// # Safety
/// `data` holds `size` bytes; the outputs may be written.
#[no_mangle]
pub unsafe extern "C" fn wgrad_template_new(
    data: *const u8,
    size: usize,
    out: *mut *mut Template,
    error: *mut Buffer<u8>,
) -> i32 {
    let work = || Template::new(text(data, size)?);
    finish(error, work, |template| {
        out.write(Box::into_raw(Box::new(template)))
    })
}

/// # Safety
/// `template` came from `wgrad_template_new` and is not used again.
#[no_mangle]
pub unsafe extern "C" fn wgrad_template_free(template: *mut Template) {
    drop(Box::from_raw(template));
}

/// `data` is a JSON object of the template's variables, `local_seconds` the local time.
///
/// # Safety
/// `template` is alive, `data` holds `size` bytes, the outputs may be written.
#[no_mangle]
pub unsafe extern "C" fn wgrad_template_render(
    template: *const Template,
    data: *const u8,
    size: usize,
    local_seconds: i64,
    out: *mut Buffer<u8>,
    error: *mut Buffer<u8>,
) -> i32 {
    let work = || (*template).render(text(data, size)?, local_seconds);
    finish(error, work, |rendered| out.write(rendered.into()))
}

/// An expression that must match the whole of a text.
///
/// # Safety
/// `data` holds `size` bytes; the outputs may be written.
#[no_mangle]
pub unsafe extern "C" fn wgrad_pattern_new(
    data: *const u8,
    size: usize,
    out: *mut *mut Regex,
    error: *mut Buffer<u8>,
) -> i32 {
    let work = || {
        let expression = text(data, size)?;
        // By itself first: "a)|(b" is no expression, and would be one between the parentheses.
        Regex::new(expression).map_err(|e| e.to_string())?;
        Regex::new(&format!(r"\A(?:{expression})\z")).map_err(|e| e.to_string())
    };
    finish(error, work, |pattern| {
        out.write(Box::into_raw(Box::new(pattern)))
    })
}

/// # Safety
/// `pattern` came from `wgrad_pattern_new` and is not used again.
#[no_mangle]
pub unsafe extern "C" fn wgrad_pattern_free(pattern: *mut Regex) {
    drop(Box::from_raw(pattern));
}

/// Returns 1 where the whole text matches, else 0.
///
/// # Safety
/// `pattern` is alive, `data` holds `size` bytes.
#[no_mangle]
pub unsafe extern "C" fn wgrad_pattern_matches(
    pattern: *const Regex,
    data: *const u8,
    size: usize,
) -> i32 {
    guard::catch(|| Ok((*pattern).is_match(text(data, size)?))).map_or(0, i32::from)
}
