"""UDP sockets of Linux: ECN marks set and read for each datagram, one socket for each source port."""

import errno
import ipaddress
import socket
import struct

IP_MTU_DISCOVER, IP_PMTUDISC_PROBE, IP_RECVTOS = 10, 3, 13
IPV6_MTU_DISCOVER, IPV6_RECVTCLASS, IPV6_TCLASS = 23, 66, 67


def family_of(address):
    return socket.AF_INET if ipaddress.ip_address(address).version == 4 else socket.AF_INET6


class Sockets:
    """One socket for each own address receives on the service port; further ones send from the source ports."""

    def __init__(self, addresses, port):
        self.port = port
        self.receiving = {}   # socket -> own address
        self.sending = {}     # (own address, source port) -> socket, or None where it cannot be bound
        self.lost = 0         # datagrams that the system did not take
        try:
            for address in addresses:
                s = socket.socket(family_of(address), socket.SOCK_DGRAM)
                self.receiving[s] = address
                s.setblocking(False)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
                if s.family == socket.AF_INET:
                    s.setsockopt(socket.IPPROTO_IP, IP_RECVTOS, 1)
                else:
                    s.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVTCLASS, 1)
                s.bind((address, port))
        except OSError:
            self.close()
            raise

    def receive(self, s):
        """(bytes, source address, own address, ECN codepoint) of one datagram, or None."""
        try:
            data, ancillary, _, source = s.recvmsg(9216, 64)
        except OSError:
            return None
        ecn = 0
        for level, kind, value in ancillary:
            if (level, kind) in ((socket.IPPROTO_IP, socket.IP_TOS), (socket.IPPROTO_IPV6, IPV6_TCLASS)):
                ecn = value[0] & 3
        return data, source[0], self.receiving[s], ecn

    def socket_for(self, address, port):
        """The socket that sends from a source port; it is bound when it is first needed."""
        key = (address, port)
        if key not in self.sending:
            s = socket.socket(family_of(address), socket.SOCK_DGRAM)
            s.setblocking(False)
            if s.family == socket.AF_INET:
                s.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)   # CONV-014
            else:
                s.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, IP_PMTUDISC_PROBE)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
            try:
                s.bind(key)
            except OSError:
                s.close()
                s = None
            self.sending[key] = s
        return self.sending[key]

    def send(self, source, port, destination, ecn, data):
        s = self.socket_for(source, port)
        if s is None:
            self.lost += 1
            return
        level, kind = (socket.IPPROTO_IP, socket.IP_TOS) if s.family == socket.AF_INET \
            else (socket.IPPROTO_IPV6, IPV6_TCLASS)
        try:
            s.sendmsg([data], [(level, kind, struct.pack("i", ecn))], 0, (destination, self.port))
        except OSError as error:
            if error.errno != errno.ECONNREFUSED:
                self.lost += 1

    def close(self):
        for s in list(self.receiving) + [s for s in self.sending.values() if s]:
            s.close()
