//! A timer as fine as the protocol needs: acknowledgments are due within 200 us, while tokio's own timer counts in
//! milliseconds.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// A timer of the system. To be used inside a tokio runtime with I/O.
pub struct Timer {
    fd: AsyncFd<OwnedFd>,
    /// When it expires, or has expired without anybody waiting.
    set: Option<Instant>,
}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// When the system has no timer to give.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe, and an owned descriptor cannot be closed behind its back"
        )]
        let fd = AsyncFd::new(fd)?;
        Ok(Self { fd, set: None })
    }

    /// Waits for this long; dropping the future is the way to stop waiting.
    ///
    /// # Errors
    /// When the system refuses to set the timer.
    pub async fn wait(&mut self, time: Duration) -> io::Result<()> {
        let now = Instant::now();
        // Far beyond any use of it, and still a time that the clock can show.
        let longest = Duration::from_secs(1 << 30);
        self.wait_until(now + time.min(longest)).await
    }

    /// Waits until `due`; dropping the future is the way to stop waiting.
    ///
    /// A deadline that moves away, as most do, costs no call to the system: the timer expires for the old one and is set
    /// again then.
    ///
    /// # Errors
    /// When the system refuses to set the timer.
    pub async fn wait_until(&mut self, due: Instant) -> io::Result<()> {
        loop {
            let now = Instant::now();
            if now >= due {
                return Ok(());
            }
            if self.set.is_none_or(|set| set > due) {
                self.set(due - now)?;
                self.set = Some(due);
            }
            let mut guard = self.fd.readable().await?;
            let mut count = [0; 8];
            let read = guard.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut count)?));
            match read {
                Ok(Ok(_)) => self.set = None,
                Ok(Err(error)) => return Err(error),
                // Readiness left from before: wait for the real expiry.
                Err(_would_block) => {}
            }
        }
    }

    fn set(&self, time: Duration) -> io::Result<()> {
        let never = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // A time of zero would disarm the timer instead.
        let time = time.max(Duration::from_nanos(1));
        let value = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        let spec = Itimerspec {
            it_interval: never,
            it_value: value,
        };
        // Setting it also forgets an expiry that nobody has waited for.
        timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }
}
