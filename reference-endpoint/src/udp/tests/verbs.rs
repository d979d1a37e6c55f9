//! Devices of the verbs over real sockets.

use super::driver::pair;
use super::*;
use crate::core::{Config, Status};
use crate::verbs::{
    AccessFlags, AsyncEvent, Cq, Device, QpInit, QpState, SendWr, WrOpcode, service,
};

const LEN: usize = 100_000;

fn device(local: SocketAddr, seed: u64) -> Device {
    let mut config = Config::new(local);
    config.seed = seed;
    Device::new(config).unwrap()
}

/// Serves a device until somebody else has finished.
async fn serve(driver: &mut Driver, device: &mut Device) {
    loop {
        let more = driver.turn(device);
        driver.wait(device.poll_timeout(), more).await.unwrap();
    }
}

#[test]
fn a_device_writes_and_reads_through_a_driver() {
    run(async {
        let [(mut a, from), (mut b, to)] = pair(3, Pace::default());
        let (mut writer, mut target) = (device(from, 1), device(to, 2));

        let (pd, cq) = (target.alloc_pd().unwrap(), target.create_cq(16).unwrap());
        let access =
            AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let there = target.reg_mr(pd, LEN, access).unwrap();
        target.listen(QpInit::new(pd, cq), service(7)).unwrap();

        let (pd, cq) = (writer.alloc_pd().unwrap(), writer.create_cq(16).unwrap());
        let here = writer.reg_mr(pd, 2 * LEN, AccessFlags::LOCAL_WRITE);
        let here = here.unwrap();
        for (i, byte) in writer.bytes_mut(here).unwrap().iter_mut().enumerate() {
            *byte = if i < LEN { (i % 251) as u8 } else { 0 };
        }
        let qp = writer.create_qp(QpInit::new(pd, cq)).unwrap();
        writer.connect(a.now(), qp, to, service(7)).unwrap();
        let all = LEN as u32;
        let write = WrOpcode::RdmaWrite(there.remote(0));
        let write = SendWr::new(1, write, here.sge(0, all));
        let read = WrOpcode::RdmaRead(there.remote(0));
        let read = SendWr::new(2, read, here.sge(u64::from(all), all));
        writer.post_send(a.now(), qp, &[write, read]).unwrap();

        let mut done = Vec::new();
        let work = async {
            while done.len() < 2 {
                let more = a.turn(&mut writer);
                done.extend(writer.poll_cq(cq, 16).unwrap());
                if done.len() < 2 {
                    a.wait(writer.poll_timeout(), more).await.unwrap();
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = serve(&mut b, &mut target) => {}
        }
        let ended: Vec<_> = done.iter().map(|wc| (wc.wr_id, wc.status)).collect();
        assert_eq!(ended, [(1, Status::Success), (2, Status::Success)]);
        let (sent, read) = writer.bytes(here).unwrap().split_at(LEN);
        assert_eq!(sent, target.bytes(there).unwrap());
        assert_eq!(sent, read);
    });
}

/// One side of a run: writes once it is connected, and stops when that is complete; or serves until it is stopped.
struct Side {
    cq: Cq,
    done: Vec<Status>,
    events: Vec<AsyncEvent>,
    stops: bool,
}

impl Application<Device> for Side {
    fn on_event(&mut self, _: &mut Device, _: u64, event: AsyncEvent) {
        self.events.push(event);
    }
    fn act(&mut self, device: &mut Device, _: u64) -> Act {
        let done = device.poll_cq(self.cq, 16).unwrap();
        self.done.extend(done.iter().map(|wc| wc.status));
        if self.stops && !self.done.is_empty() {
            Act::Stop
        } else {
            Act::Wait
        }
    }
}

#[test]
fn a_run_of_a_device_does_its_work_and_ends_in_order() {
    run(async {
        let [(mut a, from), (mut b, to)] = pair(5, Pace::default());
        let (mut writer, mut target) = (device(from, 1), device(to, 2));
        let side = |cq, stops| Side {
            cq,
            done: Vec::new(),
            events: Vec::new(),
            stops,
        };

        let (pd, cq) = (target.alloc_pd().unwrap(), target.create_cq(16).unwrap());
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let there = target.reg_mr(pd, LEN, access).unwrap();
        target.listen(QpInit::new(pd, cq), service(7)).unwrap();
        let mut serves = side(cq, false);

        let (pd, cq) = (writer.alloc_pd().unwrap(), writer.create_cq(16).unwrap());
        let here = writer.reg_mr(pd, LEN, AccessFlags::NONE).unwrap();
        writer.bytes_mut(here).unwrap().fill(7);
        let qp = writer.create_qp(QpInit::new(pd, cq)).unwrap();
        writer.connect(a.now(), qp, to, service(7)).unwrap();
        let write = WrOpcode::RdmaWrite(there.remote(0));
        let write = SendWr::new(1, write, here.sge(0, LEN as u32));
        writer.post_send(a.now(), qp, &[write]).unwrap();
        let mut works = side(cq, true);

        let stop = Stop {
            close: Duration::from_secs(3600),
            rest: Duration::ZERO,
        };
        let end = b.handle();
        let (stopped, served) = tokio::join!(
            async {
                let stopped = a.run(&mut writer, &mut works, stop).await;
                end.stop();
                stopped
            },
            b.run(&mut target, &mut serves, stop),
        );
        assert_eq!(stopped.unwrap(), Stopped { left_open: 0 });
        assert_eq!(served.unwrap(), Stopped { left_open: 0 });
        assert_eq!(works.done, [Status::Success]);
        assert_eq!(writer.bytes(here).unwrap(), target.bytes(there).unwrap());
        assert_eq!(writer.query_qp(qp).unwrap().state, QpState::Err);
        // In order: no queue pair has failed with an error.
        for side in [&works, &serves] {
            let [up, gone] = side.events[..] else {
                panic!("{:?}", side.events);
            };
            assert!(matches!(
                up,
                AsyncEvent::Established { .. } | AsyncEvent::Accepted { .. }
            ));
            let status = Status::WrFlushErr;
            assert!(matches!(gone, AsyncEvent::Disconnected { status: s, .. } if s == status));
        }
    });
}

#[test]
fn a_run_of_a_device_ends_although_the_peer_is_dead() {
    run(async {
        let [(mut a, from), (mut b, to)] = pair(6, Pace::default());
        let (mut writer, mut target) = (device(from, 1), device(to, 2));
        let (pd, cq) = (target.alloc_pd().unwrap(), target.create_cq(16).unwrap());
        target.listen(QpInit::new(pd, cq), service(7)).unwrap();
        let (pd, cq) = (writer.alloc_pd().unwrap(), writer.create_cq(16).unwrap());
        let qp = writer.create_qp(QpInit::new(pd, cq)).unwrap();
        writer.connect(a.now(), qp, to, service(7)).unwrap();
        let up = async {
            while writer.query_qp(qp).unwrap().state != QpState::Rts {
                let more = a.turn(&mut writer);
                a.wait(writer.poll_timeout(), more).await.unwrap();
            }
        };
        tokio::select! {
            () = up => {}
            () = serve(&mut b, &mut target) => {}
        }
        let mut works = Side {
            cq,
            done: Vec::new(),
            events: Vec::new(),
            stops: false,
        };
        a.handle().stop();
        let stop = Stop {
            close: Duration::from_millis(1),
            rest: Duration::from_secs(3600),
        };
        let stopped = a.run(&mut writer, &mut works, stop).await;
        assert_eq!(stopped.unwrap(), Stopped { left_open: 1 });
    });
}
