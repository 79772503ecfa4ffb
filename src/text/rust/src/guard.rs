//! Runs untrusted work on a worker thread, with a bound on memory, time and stack.
//!
//! Rust cannot unwind out of an allocation. So a worker that asks for more than its budget stops
//! inside the allocator and sleeps for good; the caller is told and goes on. What the worker held
//! (never more than the budget) stays allocated, which is the price of surviving a hostile
//! template.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, SendError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

const UNLIMITED: usize = usize::MAX;
/// Tried in this order: dropping or printing a deeply nested value recurses, and only pages that
/// are touched cost memory.
const STACK_SIZES: [usize; 2] = [512 << 20, 64 << 20];

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(UNLIMITED) };
    static WATCH: Cell<*const Watch> = const { Cell::new(ptr::null()) };
}

pub struct Limits {
    pub memory: usize,
    pub time: Duration,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Running,
    Finished,
    OutOfMemory,
}

struct Watch {
    state: Mutex<State>,
    changed: Condvar,
    abandoned: AtomicBool,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.lock() = state;
        self.changed.notify_all();
    }
}

struct BoundedAllocator;

#[global_allocator]
static ALLOCATOR: BoundedAllocator = BoundedAllocator;

// SAFETY: every call goes to the system allocator unchanged; the accounting neither allocates nor
// unwinds.
unsafe impl GlobalAlloc for BoundedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        there_or_stop(System.alloc(layout))
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        charge(layout.size());
        there_or_stop(System.alloc_zeroed(layout))
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        refund(layout.size());
        System.dealloc(block, layout)
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        charge(new_size);
        refund(layout.size());
        there_or_stop(System.realloc(block, layout, new_size))
    }
}

fn charge(size: usize) {
    let left = LEFT.get();
    if left == UNLIMITED {
        return;
    }
    // SAFETY: the worker owns a reference to its watch for as long as it is limited.
    let watch = unsafe { &*WATCH.get() };
    if size > left || watch.abandoned.load(Ordering::Relaxed) {
        stop_for_good(watch);
    }
    LEFT.set(left - size);
}

/// What the system gave; a worker to which it gives nothing stops as one beyond its budget does.
fn there_or_stop(block: *mut u8) -> *mut u8 {
    if block.is_null() && LEFT.get() != UNLIMITED {
        // SAFETY: as in charge.
        stop_for_good(unsafe { &*WATCH.get() });
    }
    block
}

fn refund(size: usize) {
    let left = LEFT.get();
    if left != UNLIMITED {
        LEFT.set(left.saturating_add(size).min(UNLIMITED - 1));
    }
}

fn stop_for_good(watch: &Watch) -> ! {
    LEFT.set(UNLIMITED);
    watch.set(State::OutOfMemory);
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

/// Runs `work` here, with a panic turned into an error.
pub fn catch<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("internal error: {}", text.unwrap_or("unknown")))
    })
}

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// The worker of this thread, between two pieces of work: a thread costs more to start than
    /// most templates to render. It ends with its sender.
    static WORKER: Cell<Option<Sender<Job>>> = const { Cell::new(None) };
}

fn start_worker() -> Option<Sender<Job>> {
    let (sender, jobs) = channel::<Job>();
    let jobs = Arc::new(Mutex::new(jobs));
    let spawn = |stack: usize| {
        let jobs = jobs.clone();
        let body = move || {
            let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
            while let Ok(job) = jobs.recv() {
                job();
            }
        };
        thread::Builder::new().stack_size(stack).spawn(body).ok()
    };
    STACK_SIZES.iter().find_map(|stack| spawn(*stack))?;
    Some(sender)
}

/// Hands the job to this thread's worker, or to a new one.
fn give(job: Job) -> Option<Sender<Job>> {
    let job = match WORKER.take() {
        Some(worker) => match worker.send(job) {
            Ok(()) => return Some(worker),
            Err(SendError(job)) => job,
        },
        None => job,
    };
    let worker = start_worker()?;
    worker.send(job).ok()?;
    Some(worker)
}

/// Runs `work` on a worker thread within `limits`. A worker that went beyond them is not used
/// again.
pub fn run<T: Send + 'static>(
    limits: Limits,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let watch = Arc::new(Watch {
        state: Mutex::new(State::Running),
        changed: Condvar::new(),
        abandoned: AtomicBool::new(false),
    });
    let result = Arc::new(Mutex::new(None));
    let memory = limits.memory;
    let job = {
        let (watch, result) = (watch.clone(), result.clone());
        Box::new(move || {
            WATCH.set(Arc::as_ptr(&watch));
            LEFT.set(memory);
            let outcome = catch(work);
            LEFT.set(UNLIMITED);
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            watch.set(State::Finished);
        })
    };
    let worker = give(job).ok_or("no thread could be started")?;

    let waiting = watch
        .changed
        .wait_timeout_while(watch.lock(), limits.time, |state| *state == State::Running);
    let state = *waiting.unwrap_or_else(PoisonError::into_inner).0;
    match state {
        State::Finished => {
            WORKER.set(Some(worker));
            let outcome = result.lock().unwrap_or_else(PoisonError::into_inner).take();
            outcome.unwrap_or_else(|| Err("internal error: the worker stopped".to_owned()))
        }
        State::OutOfMemory => Err(format!("it needs more than {} MB of memory", memory >> 20)),
        State::Running => {
            watch.abandoned.store(true, Ordering::Relaxed);
            Err(format!("it did not end within {} s", limits.time.as_secs()))
        }
    }
}
