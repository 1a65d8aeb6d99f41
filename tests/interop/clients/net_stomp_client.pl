# Net::Stomp. Orders: see adapter.py.
use strict;
use warnings;
use JSON::PP;
use MIME::Base64;
use Net::Stomp;
use Time::HiRes qw(time);

$| = 1;
my $json = JSON::PP->new->utf8->allow_nonref;
my %links;
my $receipts = 0;

# Headers travel as octets: the module knows no encodings.
sub octets { my %h = @_; map { my $v = "$h{$_}"; utf8::encode($v); ( $_ => $v ) } keys %h }
sub text   { my $v = shift; utf8::decode($v); $v }

sub keep {
    my ( $link, $frame ) = @_;
    die "refused: " . ( $frame->headers->{message} // '' ) . "\n" if $frame->command eq 'ERROR';
    return if $frame->command ne 'MESSAGE';
    push @{ $link->{messages} }, $frame;
    my %headers = map { $_ => text( $frame->headers->{$_} ) } keys %{ $frame->headers };
    push @{ $link->{waiting}{ $frame->headers->{subscription} } },
        { handle => $#{ $link->{messages} } . '', headers => \%headers, body => encode_base64( $frame->body, '' ) };
}

sub settle {
    my ( $link, $id ) = @_;
    while ( my $frame = $link->{stomp}->receive_frame( { timeout => 10 } ) ) {
        return {} if $frame->command eq 'RECEIPT' && $frame->headers->{'receipt-id'} eq $id;
        keep( $link, $frame );
    }
    die "no receipt came\n";
}

sub about {    # what ACK and NACK need, by version
    my ( $link, $order ) = @_;
    my $frame   = $link->{messages}[ $order->{handle} ];
    my %headers = ( frame => $frame );
    $headers{subscription} = $frame->headers->{subscription} if $link->{version} eq '1.1';
    $headers{id}           = $frame->headers->{ack}          if $link->{version} eq '1.2';
    $headers{transaction}  = $order->{transaction}           if $order->{transaction};
    return \%headers;
}

sub bracket {    # BEGIN, COMMIT, ABORT: the module makes frames of any command
    my ( $command, $link, $order ) = @_;
    my $headers = { transaction => $order->{transaction} };
    $link->{stomp}->send_frame( Net::Stomp::Frame->new( { command => $command, headers => $headers } ) );
    return {};
}

my %orders = (
    about => sub { { library => $Net::Stomp::VERSION } },
    open => sub {
        my ( undef, $order ) = @_;
        die { na => 'it has no heart-beats' } if $order->{heart_beat}[0];
        my $stomp = Net::Stomp->new( { hostname => $order->{host}, port => $order->{port}, reconnect_attempts => 1 } );
        my %headers = ( login => $order->{login}, passcode => $order->{passcode} );
        %headers = ( %headers, 'accept-version' => $order->{version}, host => $order->{vhost} )
            if $order->{version} ne '1.0';
        my $frame = $stomp->connect( \%headers );
        die "refused: " . ( $frame ? $frame->headers->{message} // '' : '' ) . "\n"
            unless $frame && $frame->command eq 'CONNECTED';
        $links{ $order->{link} } =
            { stomp => $stomp, version => $order->{version}, messages => [], waiting => {} };
        return $frame->headers;
    },
    send => sub {
        my ( $link, $order ) = @_;
        my %headers = octets( %{ $order->{headers} } );
        $headers{transaction} = $order->{transaction} if $order->{transaction};
        my $id = $order->{receipt} ? 'r' . ++$receipts : undef;
        $headers{receipt} = $id if $id;
        $link->{stomp}->send(
            { %headers, destination => $order->{destination}, bytes_message => 1, body => decode_base64( $order->{body} ) } );
        return $id ? settle( $link, $id ) : {};
    },
    subscribe => sub {
        my ( $link, $order ) = @_;
        my $id = 'r' . ++$receipts;
        my %headers = ( octets( %{ $order->{headers} } ), receipt => $id );
        $link->{stomp}->subscribe(
            { %headers, id => $order->{id}, destination => $order->{destination}, ack => $order->{ack} } );
        return settle( $link, $id );
    },
    receive => sub {
        my ( $link, $order ) = @_;
        my $end     = time + $order->{seconds};
        my $waiting = $link->{waiting}{ $order->{id} } //= [];
        while ( @$waiting < $order->{count} && ( my $left = $end - time ) > 0 ) {
            my $frame = $link->{stomp}->receive_frame( { timeout => $left } ) or next;
            keep( $link, $frame );
        }
        return { messages => [ splice @$waiting, 0, $order->{count} ] };
    },
    ack         => sub { $_[0]{stomp}->ack( about(@_) );  {} },
    nack        => sub { $_[0]{stomp}->nack( about(@_) ); {} },
    unsubscribe => sub {
        my ( $link, $order ) = @_;
        $link->{stomp}->unsubscribe( { id => $order->{id}, destination => $order->{destination} } );
        return {};
    },
    begin  => sub { bracket( 'BEGIN',  @_ ) },
    commit => sub { bracket( 'COMMIT', @_ ) },
    abort  => sub { bracket( 'ABORT',  @_ ) },
    alive  => sub { { alive => $_[0]{stomp}->socket->connected ? JSON::PP::true : JSON::PP::false } },
    close  => sub { ( delete $links{ $_[1]{link} } )->{stomp}->disconnect; {} },
);

while ( my $line = <STDIN> ) {
    my $order  = $json->decode($line);
    my $answer = eval { { ok => $orders{ $order->{do} }->( $links{ $order->{link} }, $order ) } };
    if ( !$answer ) {
        $answer = ref $@ eq 'HASH' ? $@ : { error => text("$@") };
    }
    print $json->encode($answer), "\n";
}
